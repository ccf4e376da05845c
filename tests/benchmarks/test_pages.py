"""Every page of a benchmark is what the record beside it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import data_page
from benchmarks.embedding_model import page as embedding_models
from benchmarks.initialisation import page as initialisation
from benchmarks.initialisation.overview import sections
from benchmarks.initialisation.reading import filled
from benchmarks.initialisation.summary import summary
from benchmarks.pages import RECORD_SUFFIX, command_line, read_record, write_page
from benchmarks.serving import page as serving

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "benchmarks"


@pytest.mark.parametrize(
    ("name", "page", "folder"),
    [
        ("embedding-models", embedding_models.page, "benchmarks"),
        ("initialisation", lambda found: initialisation.page(found, sections(found), "initialisation.png"), "results"),
        ("serving", serving.page, "benchmarks"),
    ],
)
def test_a_page_is_what_its_record_says(name: str, page: Callable[[dict[str, Any]], str], folder: str) -> None:
    found = read_record(DOCS / folder / f"{name}{RECORD_SUFFIX}")
    assert (DOCS / folder / f"{name}.md").read_text(encoding="utf-8") == page(found)


def test_the_comparison_on_tasks_that_cross_languages_is_what_its_records_and_its_reader_say() -> None:
    results = DOCS / "results"
    names = ("transfer-roberta", "transfer-modern")
    found = {f"{name}.md": read_record(results / f"{name}{RECORD_SUFFIX}") for name in names}
    by_page = {name: sections(one) for name, one in found.items()}
    for name in names:
        details = initialisation.page(found[f"{name}.md"], by_page[f"{name}.md"], f"{name}.png")
        assert (results / f"{name}.md").read_text(encoding="utf-8") == details
    reading = (results / "transfer-reading.md").read_text(encoding="utf-8").strip()
    its = [section for each in by_page.values() for section in each]
    shown = summary(found, its, "transfer.png", reading)
    assert (results / "transfer.md").read_text(encoding="utf-8") == shown
    _, _, readme = (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("(docs/results/transfer.md)")
    _, _, means = shown.partition("## What it means")
    told, said = (re.findall(r"[\d.]+(?: to [\d.]+)?%", text) for text in (readme.partition("\n\n")[0], means))
    overlap = filled(
        "{equal[roberta BL_BASE pos]} {compute[roberta MINIJOINT pos]} {score[roberta MINIJOINT pos]} "
        "{score[roberta MINIPOST pos]} {compute[roberta MINIPOST pos]}",
        its,
    )
    assert told[-5:] == [f"{number}%" for number in overlap.split()]
    assert {*told} <= {*said}, "the README says what the page says"


def test_the_page_of_data_shows_its_record() -> None:
    shown = data_page.page(read_record(RECORDS / f"data{RECORD_SUFFIX}"), 50_000, 40_000, 512)
    _, _, *parts = shown.split("\n\n")  # after the title and the versions of packages
    assert (RECORDS / "data.md").read_text(encoding="utf-8").endswith("\n\n".join(parts))


def test_a_command_is_told_without_the_folders_of_a_machine() -> None:
    given = ["--out", "/home/a/out", "--json=/home/a/all.json", "--seeds", "1", "/home/a/text", "--set", "a = 'b=c'"]
    told = command_line("benchmarks.one", given, {"--out": "OUT", "--json": "JSON"})
    assert told == "python -m benchmarks.one --out OUT --json JSON --seeds 1 text --set 'a = '\"'\"'b=c'\"'\"''"


def test_a_page_is_written_with_its_record_beside_it(tmp_path: Path) -> None:
    write_page(tmp_path / "new" / "speed", {"b": 1, "a": [2]}, "text")
    assert read_record(tmp_path / "new" / f"speed{RECORD_SUFFIX}") == {"a": [2], "b": 1}
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == [f"speed{RECORD_SUFFIX}", "speed.md"]
