"""Aligned and Markdown tables, and numbers with their units."""

from lingraft.tables import aligned, counted, format_flops, markdown_table, text_table


def test_columns_align_texts_to_the_left_and_numbers_to_the_right() -> None:
    rows = [("name", "n"), ("a", "10"), ("long", "1")]
    assert aligned(rows) == ["name   n", "a     10", "long   1"]
    assert text_table(rows)[1] == "--------"


def test_markdown_cells_may_hold_any_character() -> None:
    table = markdown_table(("a", "b"), [("x|y", "1\n2")])
    assert table == "| a | b |\n| --- | ---: |\n| x\\|y | 1 2 |"
    assert markdown_table(("a", "b", "c"), [], left=2).endswith("| --- | --- | ---: |")


def test_numbers_have_the_noun_and_the_unit_that_fit() -> None:
    assert (counted(1, "layer"), counted(2, "layer")) == ("1 layer", "2 layers")
    assert [format_flops(flops) for flops in (0, 999, 54.1e18, 1e25)] == [
        "0.0 FLOP",
        "999.0 FLOP",
        "54.1 EFLOP",
        "10000.0 ZFLOP",
    ]
