"""`lingraft cost`: the paper's figures as a table, and errors that say what to do."""

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lingraft.cli.project import cost
from lingraft.errors import DepthError

RECIPE = Path(__file__).parent / "section3.toml"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(cost)


def table(*arguments: str, recipe: Path = RECIPE) -> str:
    done = CliRunner().invoke(app, ["--recipe", str(recipe), *arguments])
    if isinstance(done.exception, DepthError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_the_table_shows_the_papers_figures() -> None:
    text = table()
    assert "hours at 30 TFLOP/s." in text
    found = rows(text)
    for row in (
        ["BL_BASE", "pretraining", "12", "1", "A1", "125,000", "78.82"],
        ["adaptation, each language", "12", "1", "A3", "125,000", "54.05"],
        ["BL_SMALL", "pretraining", "4", "1", "A1", "125,000", "29.34"],
        ["MINIJOINT", "pretraining", "12", "2", "A1", "125,000", "83.42"],
        ["step 1b", "6", "1", "A4", "125,000", "21.62"],
        ["adaptation, each language", "6", "1", "A3", "125,000", "29.32"],
        ["total, 1 language", "104.48", "967.45"],
        ["total, 14 languages", "378.38", "3,503.52"],
    ):
        assert row in [line[: len(row)] for line in found]
    assert [row[0] for row in found].count("adaptation, each language") == 4


def test_hours_follow_the_rate() -> None:
    """50 TFLOP/s are 0.18 EFLOPs an hour; MINIJOINT's first language takes 104.48 of these."""
    assert ["total, 1 language", "104.48", "580.47"] in rows(table("--tflops", "50", "--languages", "1"))


def test_what_small_recipes_cost_is_not_shown_as_nothing(tmp_path: Path) -> None:
    small = tmp_path / "recipe.toml"
    small.write_text(RECIPE.read_text(encoding="utf-8").replace("125_000", "9").replace("2048", "2"), encoding="utf-8")
    costs = [row[-2:] for row in rows(table(recipe=small)) if row[0].startswith("total")]
    assert costs
    assert all(float(cell) > 0 for pair in costs for cell in pair)


def test_what_the_table_leaves_out_is_said(tmp_path: Path) -> None:
    changed = tmp_path / "recipe.toml"
    raw = RECIPE.read_text(encoding="utf-8").replace("block_tokens = 512", "block_tokens = 512\nfeedforward = 1024")
    changed.write_text(raw + '\n[search]\nlanguage = "de"\nsteps_at_depth = 5000\n', encoding="utf-8")
    text = table("--depth", "12", recipe=changed)
    assert "Left out: MINIPOST at depth 12: " in text
    assert "the recipe's have 1024" in text
    assert "Not counted: the depth search, 2 trials, at most 1.69 EFLOPs together." in text


def test_a_depth_that_no_model_has_is_refused() -> None:
    with pytest.raises(DepthError, match=r"depth 13.*12 layers"):
        table("--depth", "13")
