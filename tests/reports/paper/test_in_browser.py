"""The page of the paper's comparison as a browser shows it, opened from disk on a desktop and on a phone."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.reports.paper.report import PAGE_FILE
from tests.reports.run.browser import Page, new_page, shared_chromium
from tests.reports.run.test_in_browser import CUT_TABLES

WINDOWS = {"desktop": (1280, 900), "phone": (375, 812)}
DIFFERENT = {("phone", "dark")}
PICTURES = """[...document.querySelectorAll("img")].map(img =>
  [img.naturalWidth, img.naturalHeight, img.getBoundingClientRect().right])"""

pytestmark = pytest.mark.integration


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(view, marks=() if view in DIFFERENT else pytest.mark.nightly, id="-".join(view))
        for view in itertools.product(WINDOWS, ("light", "dark"))
    ],
)
def view(request: pytest.FixtureRequest, report: Artifact) -> Iterator[tuple[Page, int, str]]:
    """The page in one kind of window, with the window's width and the reader's scheme."""
    window, scheme = request.param
    width, height = WINDOWS[window]
    with new_page(shared_chromium()) as page:
        page.view(width, height, phone=window == "phone", scheme=scheme)
        page.open(Path(report.folder) / PAGE_FILE)
        yield page, width, scheme


def test_the_page_asks_for_nothing_else_and_has_no_complaint(view: tuple[Page, int, str], report: Artifact) -> None:
    page, _, _ = view
    asked = [url for url in page.requests if not url.startswith("data:")]
    assert asked == [(report.folder / PAGE_FILE).as_uri()]
    assert not page.complaints


def test_the_page_is_as_wide_as_its_window_and_wide_tables_scroll_in_it(view: tuple[Page, int, str]) -> None:
    page, width, _ = view
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT_TABLES) == []


def test_every_figure_is_shown_within_the_window(view: tuple[Page, int, str], report: Artifact) -> None:
    page, width, _ = view
    shown = page.evaluate(PICTURES)
    assert len(shown) == len(list(report.folder.glob("*.png")))
    assert all(wide > 1000 and high > 300 and right <= width for wide, high, right in shown)


def test_the_page_is_bright_or_dark_as_its_reader_prefers(view: tuple[Page, int, str]) -> None:
    page, _, scheme = view
    picture = page.screenshot()
    paper, title = picture[0, 0], picture[:100]
    assert paper.min() > 0.9 if scheme == "light" else paper.max() < 0.2
    assert np.abs(title - paper).max() > 0.7
