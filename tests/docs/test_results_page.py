"""Pages of results are whole, and the README agrees with the records."""

import lzma
import re
from pathlib import Path
from statistics import mean

from benchmarks.demo_record import Record

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_the_readmes_table_is_what_the_demo_was_recorded_with() -> None:
    readme, table = (ROOT / "README.md").read_text(encoding="utf-8"), Record.load().table
    rows = [
        [re.sub("[*`]", "", cell).strip() for cell in line.split("|")[1:-1]]
        for line in readme.splitlines()
        if "|" in line
    ]
    shown = {(start, system): numbers for start, system, _, *numbers, _ in rows if len(numbers) == 5}
    expected = {
        ("overlap (the paper's)", "MINIJOINT"): ("overlap, MINIJOINT", "topic"),
        ("aligned", "as initialised"): ("aligned, MINIJOINT", "topic_initial"),
        ("aligned", "MINIJOINT"): ("aligned, MINIJOINT", "topic"),
        ("aligned", "BL_BASE"): ("aligned, BL_BASE", "topic"),
        ("aligned from halves that share no page", "as initialised"): (
            "aligned from halves that share no page",
            "topic_initial",
        ),
    }
    assert {*expected} < {*shown}
    base = mean(scores["topic"] for scores in table["aligned, BL_BASE"].values())
    for place, (title, kind) in expected.items():
        scores = [table[title][language][kind] for language in ("de", "tr", "el")]
        told = [f"{100 * score:.1f}" for score in (*scores, mean(scores))]
        assert shown[place] == [*told, f"{mean(scores) / base:.0%}"], place


def test_every_picture_is_there_and_nothing_names_a_folder_of_a_machine() -> None:
    texts = [path.read_text(encoding="utf-8") for path in RESULTS.iterdir() if path.suffix == ".md"]
    texts += [lzma.decompress(path.read_bytes()).decode() for path in RESULTS.glob("*.xz")]
    shown = [file for text in texts for file in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert shown
    assert all((RESULTS / file).is_file() for file in shown)
    assert not any(re.search(r"/(tmp|work|root|home)/", text) for text in texts)
