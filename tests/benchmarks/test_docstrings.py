from pathlib import Path

from tests.test_docstrings import faults

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_docstrings_of_benchmarks_are_sentences_about_what_they_stand_on() -> None:
    found = [fault for path in sorted(BENCHMARKS.rglob("*.py")) for fault in faults(path)]
    assert not found, "\n".join(found)
