"""Pages of results are whole, and the README agrees with the records."""

import lzma
import re
from pathlib import Path

from benchmarks.pages import read_record

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_the_readmes_scores_are_those_that_the_demo_was_checked_with() -> None:
    checks = "\n".join(read_record(ROOT / "docs" / "benchmarks" / "demo-compare.json")["checks"])
    found = re.findall(r"^(?:(?:de|tr|el) over 2 layers:|mean) zero-shot accuracy +(0\.\d+)", checks, re.MULTILINE)
    shown = " | ".join(f"**{100 * float(score):.1f}**" for score in found)
    assert f"| **aligned, mini-model adaptation** | 2 of 4 | {shown} |" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_every_picture_is_there_and_nothing_names_a_folder_of_a_machine() -> None:
    texts = [path.read_text(encoding="utf-8") for path in RESULTS.iterdir() if path.suffix == ".md"]
    texts += [lzma.decompress(path.read_bytes()).decode() for path in RESULTS.glob("*.xz")]
    shown = [file for text in texts for file in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert shown
    assert all((RESULTS / file).is_file() for file in shown)
    assert not any(re.search(r"/(tmp|work|root|home)/", text) for text in texts)
