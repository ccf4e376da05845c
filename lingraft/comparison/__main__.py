"""`python -m lingraft.comparison RECORD...`: write the page of each record beside it, in Markdown, with its picture."""

import sys
from collections.abc import Sequence
from pathlib import Path

from lingraft.artifacts.files import write_bytes, write_text
from lingraft.comparison.page import markdown_page, page
from lingraft.comparison.records import Records
from lingraft.errors import LingraftError


def write_pages(files: Sequence[Path]) -> None:
    """Write `NAME.md` and `NAME.png` beside each `NAME.json` or `NAME.json.xz`."""
    for file in files:
        records, place = Records.load(file), file.with_name(file.name.partition(".")[0])
        if drawing := page(records).drawing:
            write_bytes(place.with_suffix(".png"), drawing.png())
        write_text(place.with_suffix(".md"), markdown_page(records, f"{place.name}.png"))
        print(place.with_suffix(".md"))


if __name__ == "__main__":
    try:
        write_pages([*map(Path, sys.argv[1:])])
    except LingraftError as error:
        sys.exit(f"error: {error}")
