"""Every page of a benchmark is what the record beside it says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import data_page
from benchmarks.embedding_model import page as embedding_models
from benchmarks.pages import RECORD_SUFFIX, command_line, read_record, write_page

RECORDS = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("embedding-models", embedding_models.page),
    ],
)
def test_a_page_is_what_its_record_says(name: str, page: Callable[[dict[str, Any]], str]) -> None:
    found = read_record(RECORDS / f"{name}{RECORD_SUFFIX}")
    assert (RECORDS / f"{name}.md").read_text(encoding="utf-8") == page(found)


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
