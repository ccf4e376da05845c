"""The report as a browser shows it, opened from disk on a desktop and on a phone."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.reports.run.page import PAGE_FILE
from tests.reports.run.browser import new_page, shared_chromium

WINDOWS = {"desktop": (1280, 900), "phone": (375, 812)}
BROKEN_PICTURES = """[...document.images].filter(img => !img.naturalWidth ||
  img.getBoundingClientRect().right > document.documentElement.clientWidth).map(img => img.alt)"""
CUT_TABLES = """[...document.querySelectorAll("table")].filter(table =>
  table.scrollWidth > table.parentElement.clientWidth && getComputedStyle(table.parentElement).overflowX != "auto"
).map(table => table.innerText)"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=[(made, window) for made in ("report", "report_of_two") for window in WINDOWS])
def view(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """A report as opened in one kind of window: path, page and width."""
    made, window = request.param
    path = request.getfixturevalue(made).folder / PAGE_FILE
    width, height = WINDOWS[window]
    with new_page(shared_chromium()) as page:
        page.view(width, height, phone=window == "phone", scheme="light")
        page.open(path)
        yield SimpleNamespace(path=path, page=page, width=width)


def test_the_browser_asks_for_the_page_alone_and_has_no_complaint(view: SimpleNamespace) -> None:
    assert [url for url in view.page.requests if not url.startswith("data:")] == [view.path.as_uri()]
    assert not view.page.complaints


def test_the_page_itself_refuses_what_would_come_from_elsewhere(report: Artifact, tmp_path: Path) -> None:
    elsewhere, changed = "http://localhost:9/picture.png", tmp_path / PAGE_FILE
    text = (report.folder / PAGE_FILE).read_text(encoding="utf-8")
    changed.write_text(text.replace("</body>", f'<img src="{elsewhere}"></body>'), encoding="utf-8")
    with new_page(shared_chromium()) as page:
        page.open(changed)
        (complaint,) = page.complaints
    assert "Content Security Policy" in complaint


def test_the_page_is_as_wide_as_its_window_and_nothing_is_cut(view: SimpleNamespace) -> None:
    assert view.page.evaluate("document.documentElement.scrollWidth") == view.width
    assert view.page.evaluate(CUT_TABLES) == []
    assert view.page.evaluate(BROKEN_PICTURES) == []
