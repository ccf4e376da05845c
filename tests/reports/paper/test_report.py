"""The written report: page, Markdown, figures and records, as files."""

import base64
import re
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.systems import System
from lingraft.errors import ArtifactError, MissingExtraError
from lingraft.reports.paper.curves import system_curves
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.report import MARKDOWN_FILE, PAGE_FILE, markdown, write
from lingraft.reports.paper.results_table import ResultsTable
from tests.reports.paper import printed
from tests.reports.paper.made_up import MadeUp
from tests.reports.run.page import Page

FIGURES = {
    *(f"figure-{name}" for name in ("1", "3", "4-minijoint", "a1-minijoint")),
    *(f"curves-{task}" for task in ("xnli", "paws-x")),
    "depths-minijoint",
}


def pictures(report: Artifact) -> dict[str, np.ndarray]:
    """Every PNG file beside the page, as pixels from 0 to 1 without transparency."""
    found = {path.stem: matplotlib.image.imread(path) for path in report.folder.glob("*.png")}
    assert found
    return {name: pixels[..., :3] for name, pixels in found.items()}


def test_the_page_holds_every_table_of_the_paper(holed: Artifact, made_up: MadeUp) -> None:
    captions = Page(holed.folder / PAGE_FILE).texts("caption")
    numbers = {caption.partition(":")[0] for caption in captions}
    assert {f"Table {number}" for number in ("1", "2", "3", "4", "5", "A1", "A2", "A3", "A4", "A5")} <= numbers
    assert "Table A5" not in markdown(made_up.records())  # no pretraining was done again


def test_every_figure_is_a_file_and_is_shown_in_the_page_and_the_markdown(holed: Artifact) -> None:
    files = {path.stem: path.read_bytes() for path in holed.folder.glob("*.png")}
    assert set(files) == FIGURES
    images = Page(holed.folder / PAGE_FILE).attributes("img")
    shown = [base64.b64decode((image["src"] or "").removeprefix("data:image/png;base64,")) for image in images]
    assert sorted(shown) == sorted(files.values())
    assert all(image["alt"] for image in images)
    text = (holed.folder / MARKDOWN_FILE).read_text(encoding="utf-8")
    assert sorted(re.findall(r"!\[[^]]+\]\((.+)\.png\)", text)) == sorted(files)
    assert {"Figure 1", "Figure 3", "Figure 4", "Figure A1"} <= set(re.findall(r"\*\*(Figure \w+):", text))


@pytest.fixture
def fourteen_languages(tmp_path: Path) -> Artifact:
    records = printed.records()
    xnli = records.tasks[0]
    only = {"tasks": (xnli,), "cells": tuple(cell for cell in records.cells if cell.task == xnli.name)}
    return write(records.model_copy(update=only), tmp_path / "out")


@pytest.mark.parametrize("which", ["holed", "fourteen_languages"])
def test_every_figure_is_drawn_and_nothing_is_cut_off(which: str, request: pytest.FixtureRequest) -> None:
    for name, pixels in pictures(request.getfixturevalue(which)).items():
        coloured = np.ptp(pixels, axis=-1) > 0.2
        assert coloured.mean() > 0.001, name
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert border.min() > 0.99, f"{name} is cut off at its border"


def test_a_mean_curve_spans_languages_of_different_checkpoints(made_up: MadeUp) -> None:
    whole = made_up.cell(System.BL_BASE, 12, "de")
    sparse = whole.model_copy(update={"points": (*whole.points[::3], whole.points[-1])})
    alts = [system_curves(ResultsTable(records))[0].alt for records in (made_up.records(), made_up.records(sparse))]
    assert alts[0] == alts[1]
    assert "XNLI, mean of 4 languages: BL_BASE 59.4, BL_SMALL 51.5, MINIPOST 58.7, MINIJOINT 57.0" in alts[0]


def test_the_page_loads_nothing_from_anywhere_and_is_well_formed(holed: Artifact) -> None:
    page = Page(holed.folder / PAGE_FILE)
    text = (holed.folder / PAGE_FILE).read_text(encoding="utf-8")
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _, _ in page.elements}
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in page.attributes("img"))
    assert "@import" not in text
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"] for link in page.attributes("a")} == {f"#{each}" for each in ids}
    assert len(page.texts("caption")) == len(page.attributes("table"))
    assert all("scope" in attributes for attributes in page.attributes("th"))


def test_page_and_markdown_show_the_same_tables(holed: Artifact) -> None:
    cells = Page(holed.folder / PAGE_FILE).texts("th", "td")
    lines = (holed.folder / MARKDOWN_FILE).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|") and "---" not in line]
    assert cells == [cell.strip("*") for row in rows for cell in row]


def test_what_is_missing_is_marked_and_counted(holed: Artifact, made_up: MadeUp) -> None:
    page = Page(holed.folder / PAGE_FILE)
    cells = page.texts("td")
    assert not [cell for cell in cells if re.search(r"\b(nan|inf|None)\b", cell)]
    assert {"∞", "–¹"} <= {*cells}
    assert "Of 36 cells, 5 are missing: 3 failed: out of memory, 2 not run." in page.texts("li")
    assert "All 36 cells of the comparison are there." in markdown(made_up.records())


def test_an_error_stands_once_in_full_at_the_end(made_up: MadeUp) -> None:
    why = "ArtifactError: it is damaged. Make it again, since nothing else will do"
    text = markdown(
        made_up.records(*(made_up.failed(System.MINIPOST, 4, language, why=why) for language in ["de", "tr"]))
    )
    assert text.count("ArtifactError: it is damaged.\n") > 5
    assert text.count("nothing else will do") == 1
    assert text.index("## What failed, and why") < text.index("nothing else will do")
    assert "2 are missing: 2 failed: ArtifactError: it is damaged." in text
    assert "What failed" not in markdown(made_up.records())


def test_equal_records_give_an_equal_report(odd: Artifact, tmp_path: Path) -> None:
    assert write(PaperRecords.load(odd.folder), tmp_path / "again").fingerprint == odd.fingerprint


def test_another_or_damaged_report_has_no_records_of_a_comparison(tmp_path: Path) -> None:
    files = {"other": ("report.json", "{}"), "damaged": ("records.json", '{"title": 3}')}
    for folder, (file, content) in files.items():
        with artifact.create(tmp_path / folder, Kind.REPORT) as draft:
            (draft.folder / file).write_text(content)
    with pytest.raises(ArtifactError, match="is a report, but not of the paper's comparison"):
        PaperRecords.load(tmp_path / "other")
    with pytest.raises(ArtifactError, match=r"(?s)records.json is damaged.*Make the report again"):
        PaperRecords.load(tmp_path / "damaged")


def test_what_the_records_say_is_shown_as_text_whatever_it_holds(odd: Artifact) -> None:
    page, said = Page(odd.folder / PAGE_FILE), PaperRecords.load(odd.folder).title
    assert said.startswith("<script>")
    assert not page.attributes("script")
    assert page.texts("h1") == [said]
    assert f"–¹: failed: {said}." in page.texts("li")


def test_a_run_of_which_everything_failed_is_still_reported(made_up: MadeUp, tmp_path: Path) -> None:
    records = made_up.records(tasks=[made_up.task("xnli")])
    dead = tuple(cell.model_copy(update={"points": (), "failed": "no memory"}) for cell in records.cells)
    written = write(records.model_copy(update={"cells": dead, "source_cells": ()}), tmp_path / "out")
    assert not list(written.folder.glob("*.png"))
    assert "Of 25 cells, 25 are missing: 25 failed: no memory." in markdown(PaperRecords.load(written.folder))


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    made_up: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib is not installed.*lingraft\[report\]"):
        write(made_up.records(tasks=[made_up.task("paws-x", ("de",))]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "| BL_BASE | 55.0 |" in markdown(made_up.records())
