"""Every page of a benchmark is what the record beside it says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.initialisation import page as initialisation
from benchmarks.pages import RECORD_SUFFIX, markdown, read_record, write_page
from benchmarks.progressive import page as progressive
from benchmarks.serving import page as serving
from benchmarks.serving.sections import Told
from benchmarks.serving.soaking import page as soaking
from benchmarks.speed.cells import cells
from benchmarks.speed.table import table

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "benchmarks"
TOKENS = 4096
"""Tokens of an update in the committed comparison of speed."""


def speed_page(found: dict[str, Any]) -> str:
    return table([cell for cell in cells(TOKENS) if cell.name in found["comparison"]], found)


@pytest.mark.parametrize(
    ("name", "page", "folder"),
    [
        ("initialisation", initialisation.page, "results"),
        ("progressive-depth", lambda found: progressive.page(found, "progressive-depth.png"), "benchmarks"),
        ("serving", lambda found: serving.page(Told(**found)), "benchmarks"),
        ("serving-soak", soaking.page, "benchmarks"),
        ("training-speed", speed_page, "benchmarks"),
    ],
)
def test_a_page_is_what_its_record_says(name: str, page: Callable[[dict[str, Any]], str], folder: str) -> None:
    found = read_record(RECORDS / f"{name}{RECORD_SUFFIX}")
    assert (DOCS / folder / f"{name}.md").read_text(encoding="utf-8") == page(found)


def test_a_page_is_written_with_its_record_beside_it(tmp_path: Path) -> None:
    text = markdown(["side", "what", "s"], [["own", "all", "1.0"]], left=2)
    assert text == "| side | what | s |\n| --- | --- | ---: |\n| own | all | 1.0 |"
    write_page(tmp_path / "new" / "speed", {"b": 1, "a": [2]}, text)
    assert read_record(tmp_path / "new" / f"speed{RECORD_SUFFIX}") == {"a": [2], "b": 1}
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == [f"speed{RECORD_SUFFIX}", "speed.md"]
