"""The report as a browser shows it, opened from disk on a desktop and on a phone, in the light and in the dark."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.reports.run.page import PAGE_FILE
from tests.reports.run.browser import new_page, shared_chromium

WINDOWS = {"desktop": (1280, 900), "phone": (375, 812)}
DIFFERENT = {
    ("report", "phone", "dark"),
    ("report_of_two", "desktop", "light"),
}
"""Each window, each scheme and each report at least once."""
VIEWS = [
    pytest.param(view, marks=() if view in DIFFERENT else pytest.mark.nightly, id="-".join(view))
    for view in (
        *itertools.product(["report"], WINDOWS, ("light", "dark")),
        *itertools.product(["report_of_two"], WINDOWS, ["light"]),
    )
]
PLOTS = """[...document.querySelectorAll("svg")].map(plot => {
  const box = plot.getBoundingClientRect();
  const overhang = [...plot.querySelectorAll("text")].map(text => text.getBoundingClientRect()).map(own =>
    Math.max(box.left - own.left, own.right - box.right, box.top - own.top, own.bottom - box.bottom));
  return {name: plot.ariaLabel, left: box.left, top: box.top, right: box.right, bottom: box.bottom,
    overhang: Math.max(...overhang)};
})"""
CUT_TABLES = """[...document.querySelectorAll("table")].filter(table =>
  table.scrollWidth > table.parentElement.clientWidth && getComputedStyle(table.parentElement).overflowX != "auto"
).map(table => table.caption.innerText)"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=VIEWS)
def view(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """A report as opened in one kind of window: path, page, width, scheme, and its picture."""
    made, window, scheme = request.param
    path = request.getfixturevalue(made).folder / PAGE_FILE
    width, height = WINDOWS[window]
    with new_page(shared_chromium()) as page:
        page.view(width, height, phone=window == "phone", scheme=scheme)
        page.open(path)
        yield SimpleNamespace(path=path, page=page, width=width, scheme=scheme, picture=page.screenshot())


def test_the_browser_asks_for_the_page_alone_and_has_no_complaint(view: SimpleNamespace) -> None:
    assert view.page.requests == [view.path.as_uri()]
    assert not view.page.complaints


def test_the_page_itself_refuses_what_would_come_from_elsewhere(report: Artifact, tmp_path: Path) -> None:
    elsewhere, changed = "http://localhost:9/picture.png", tmp_path / PAGE_FILE
    text = (report.folder / PAGE_FILE).read_text(encoding="utf-8")
    changed.write_text(text.replace("</main>", f'<img src="{elsewhere}"></main>'), encoding="utf-8")

    with new_page(shared_chromium()) as page:
        page.open(changed)
        assert page.requests == [changed.as_uri(), elsewhere]
        (complaint,) = page.complaints
    assert "Content Security Policy" in complaint


def test_the_page_is_as_wide_as_its_window_and_wide_tables_scroll_in_it(view: SimpleNamespace) -> None:
    assert view.page.evaluate("document.documentElement.scrollWidth") == view.width
    assert view.picture.shape[1] == view.width
    assert view.page.evaluate(CUT_TABLES) == []


def test_the_page_is_bright_or_dark_as_its_reader_prefers(view: SimpleNamespace) -> None:
    paper, title = view.picture[0, 0], view.picture[:100]
    assert paper.min() > 0.9 if view.scheme == "light" else paper.max() < 0.2
    assert np.abs(title - paper).max() > 0.7


def test_every_plot_is_drawn_and_keeps_its_text_inside(view: SimpleNamespace) -> None:
    plots = view.page.evaluate(PLOTS)
    assert len(plots) == view.path.read_text(encoding="utf-8").count("<svg")
    for plot in plots:
        assert plot["overhang"] < 0.5, plot
        rows, columns = slice(int(plot["top"]), int(plot["bottom"])), slice(int(plot["left"]), int(plot["right"]))
        pixels = view.picture[rows, columns]
        inked = np.abs(pixels - view.picture[0, 0]).max(axis=-1) > 0.1
        # Axes and text are grey, what was measured has a colour; a thin line fills half a percent.
        coloured = np.ptp(pixels, axis=-1) > 0.2
        assert inked.mean() > 0.01, plot
        assert coloured.mean() > 0.001, plot
