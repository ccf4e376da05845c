"""The page of results and the README agree with the records beside the page, of the recipe that is shipped."""

import lzma
import re
from pathlib import Path

import pytest

from benchmarks.pages import read_record
from benchmarks.paper.__main__ import RECIPE
from benchmarks.paper.claims import claims, headlines
from benchmarks.paper.page import PAGE_RECORDS_FILE, RUN_FILE
from lingraft.config.recipe import Recipe
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.results_table import ResultsTable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def grid() -> ResultsTable:
    return ResultsTable(PaperRecords.model_validate(read_record(RESULTS / PAGE_RECORDS_FILE)))


def test_the_page_shows_its_records(grid: ResultsTable) -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    for table in (*headlines(grid), claims(grid)):
        assert "\n".join(table.markdown()) in page


def test_the_readmes_scores_are_those_that_the_demo_was_checked_with() -> None:
    checks = "\n".join(read_record(ROOT / "docs" / "benchmarks" / "demo-compare.json")["checks"])
    found = re.findall(r"^(?:(?:de|tr|el) over 2 layers:|mean) zero-shot accuracy +(0\.\d+)", checks, re.MULTILINE)
    shown = " | ".join(f"**{100 * float(score):.1f}**" for score in found)
    assert f"| **aligned, mini-model adaptation** | 2 of 4 | {shown} |" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_results_are_of_the_recipe_that_is_shipped() -> None:
    ran, shipped = (
        read_record(RESULTS / RUN_FILE)["recipe"],
        Recipe.load(RECIPE).model_dump(mode="json"),
    )
    for section in ("source", "targets", "encoder", "pretraining", "mini", "adaptation", "paper", "precision"):
        assert ran[section] == shipped[section]


def test_every_picture_is_there_and_nothing_names_a_folder_of_a_machine() -> None:
    texts = [path.read_text(encoding="utf-8") for path in RESULTS.iterdir() if path.suffix == ".md"]
    texts += [lzma.decompress(path.read_bytes()).decode() for path in RESULTS.glob("*.xz")]
    shown = [file for text in texts for file in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert shown
    assert all((RESULTS / file).is_file() for file in shown)
    assert not any(re.search(r"/(tmp|work|root|home)/", text) for text in texts)
