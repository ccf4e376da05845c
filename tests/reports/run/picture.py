"""`make demo-picture`: the first sections of the demo's report as the documentation shows them."""

import sys
import tempfile
from pathlib import Path

from lingraft.reports.run.page import PAGE_FILE
from tests.reports.run.browser import new_page, running_chromium, write_screenshot

WIDTH, HEIGHT = 1100, 900
END = "document.getElementById('words').getBoundingClientRect().top + window.scrollY"
"""Where the nearest words begin: what is above them is shown."""


def main() -> None:
    """Open a report in Chromium, and write a picture of it."""
    report, out = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, running_chromium(Path(folder)) as port, new_page(port) as page:
        page.view(WIDTH, HEIGHT, phone=False, scheme="light")
        page.open((report / PAGE_FILE).resolve())
        write_screenshot(out, page.screenshot()[: int(page.evaluate(END))])


if __name__ == "__main__":
    main()
