"""`make picture`: the playground as the documentation shows it, on the bundle and the examples of the demo."""

import sys
import tempfile
from pathlib import Path

from pipelines.endpoint import run_server
from tests.reports.run.browser import new_page, running_chromium, write_screenshot
from tests.serving.playground.browsing import answered

WIDTH, HEIGHT = 1280, 400
READY_S = 600


def take(bundle: Path, path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        run_server([bundle], READY_S) as server,
        running_chromium(Path(folder)) as port,
        new_page(port) as page,
    ):
        page.view(WIDTH, HEIGHT, phone=False, scheme="light")
        page.visit(f"{server.url}/ui")
        page.wait("question.checkVisibility()")
        page.evaluate("ask.click()")
        answered(page)
        write_screenshot(path, page.screenshot())


if __name__ == "__main__":
    take(*map(Path, sys.argv[1:]))
