"""Pages of results are what their records say, and whole."""

import lzma
import re
import shutil
from pathlib import Path

import pytest

from lingraft.comparison.__main__ import write_pages

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS = sorted(RESULTS.glob("*.json.xz"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name)
def test_a_page_is_what_the_comparison_makes_of_its_record(record: Path, tmp_path: Path) -> None:
    write_pages([Path(shutil.copy(record, tmp_path))])
    page = tmp_path / f"{record.name.partition('.')[0]}.md"
    assert (RESULTS / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert page.with_suffix(".png").is_file()


def test_every_picture_is_there_and_nothing_names_a_folder_of_a_machine() -> None:
    texts = [path.read_text(encoding="utf-8") for path in RESULTS.iterdir() if path.suffix == ".md"]
    texts += [lzma.decompress(path.read_bytes()).decode() for path in RESULTS.glob("*.xz")]
    shown = [file for text in texts for file in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert shown
    assert all((RESULTS / file).is_file() for file in shown)
    assert not any(re.search(r"/(tmp|work|root|home)/", text) for text in texts)
