"""Numbers that the paper prints, to check our arithmetic against and to show beside our own ratios.

Scores are percentages and costs V100-days, both rounded by the paper to one decimal. Never compare absolute scores with
those of another run: data, sizes and test sets differ.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lingraft.config.systems import System

_TITLES = {"xnli": "XNLI", "mlqa": "MLQA", "paws-x": "PAWS-X", "xquad": "XQuAD"}


@dataclass(frozen=True)
class PublishedTable:
    """One task's part of a table."""

    title: str
    languages: tuple[str, ...]
    rows: dict[System, tuple[float, ...]]
    appendix: bool = False
    """True for a task that the paper's averages over tasks leave out."""

    def row(self, system: System) -> dict[str, float]:
        """Return a system's numbers by language."""
        return dict(zip(self.languages, self.rows[system], strict=True))


def _tables(printed: str) -> dict[str, PublishedTable]:
    """Return tables by task; a task's name stands before its languages, a system's before its numbers."""
    found: dict[str, PublishedTable] = {}
    for line in printed.strip().splitlines():
        name, *cells = line.split()
        if name in _TITLES:
            table = PublishedTable(_TITLES[name], tuple(cells), {}, appendix=name == "xquad")
            found[name] = table
        else:
            table.rows[System(name)] = tuple(map(float, cells))
    return found


SCORES = _tables("""
xnli        ar   bg   de   el   es   fr   hi   ru   sw   th   tr   ur   vi   zh
BL_BASE   70.2 78.4 76.2 76.1 79.2 78.9 65.6 72.5 68.2 70.1 67.1 60.9 72.1 72.4
BL_SMALL  65.4 71.1 68.0 69.1 71.3 71.0 61.8 66.2 63.8 64.9 64.4 57.9 65.7 67.6
MINIPOST  70.1 77.8 75.7 75.5 78.5 78.2 63.9 72.2 67.5 70.2 64.8 59.2 70.8 72.0
MINIJOINT 69.3 77.6 75.0 74.7 78.4 77.7 62.4 71.7 66.9 68.8 63.7 58.1 69.2 70.8
mlqa        ar   de   es   hi   vi   zh
BL_BASE   51.2 61.0 66.6 48.5 57.3 56.8
BL_SMALL  46.0 54.6 59.8 43.1 53.2 50.8
MINIPOST  50.8 60.4 66.7 48.9 56.6 56.7
MINIJOINT 50.8 60.1 66.0 46.4 57.2 55.6
paws-x      de   fr   es   zh
BL_BASE   84.7 85.8 86.0 77.3
BL_SMALL  74.2 76.4 76.6 70.8
MINIPOST  83.8 86.2 86.3 76.0
MINIJOINT 84.4 85.1 86.7 77.9
xquad       ar   de   el   es   hi   ru   th   tr   vi   zh
BL_BASE   52.4 69.2 70.0 74.8 53.8 68.7 57.1 57.2 65.9 53.7
BL_SMALL  48.2 61.2 63.3 65.8 46.2 61.0 50.4 52.1 60.3 46.2
MINIPOST  52.4 68.8 69.9 75.1 55.3 68.2 56.9 58.6 65.7 53.5
MINIJOINT 53.8 70.1 69.9 73.7 51.8 68.6 56.5 53.2 64.9 52.5
""")
"""Final scores in percent (tables 2 and A2)."""

DAYS = _tables("""
xnli        ar   bg   de   el   es   fr   hi   ru   sw   th   tr   ur   vi   zh
BL_BASE    2.5  1.2  1.1  1.5  0.8  0.8  3.2  1.8  1.4  1.8  2.3  8.3  1.0  1.7
MINIPOST   1.7  0.9  0.8  0.9  0.4  0.4  2.5  1.3  1.1  1.3  3.0  6.5  0.8  1.1
MINIJOINT  1.0  0.5  0.5  0.6  0.3  0.3  5.9  0.6  0.6  0.7  5.3  5.4  0.6  0.8
mlqa        ar   de   es   hi   vi   zh
BL_BASE    2.6  1.1  0.8  3.4  1.2  1.8
MINIPOST   1.7  0.8  0.5  1.7  0.9  1.2
MINIJOINT  1.0  0.6  0.4  5.3  0.5  0.9
paws-x      de   fr   es   zh
BL_BASE    0.7  0.6  0.6  0.7
MINIPOST   0.3  0.3  0.3  0.4
MINIJOINT  0.2  0.2  0.2  0.2
xquad       ar   de   el   es   hi   ru   th   tr   vi   zh
BL_BASE    2.3  1.1  1.7  0.8  3.3  1.9  2.1  2.2  1.2  1.5
MINIPOST   1.4  0.8  1.0  0.4  1.3  1.3  1.4  1.2  0.8  1.0
MINIJOINT  0.8  0.4  0.6  0.5  3.1  0.6  0.6  inf  0.5  0.6
""")
"""V100-days to near-maximal performance (tables 3 and A1)."""


class LanguageDistances(NamedTuple):
    """Word order, and distances from English by lang2vec (table 1)."""

    word_order: str
    syntactic: float
    phylogenetic: float


DISTANCES = {
    "ar": LanguageDistances("SVO/VSO", 0.57, 1.00),
    "bg": LanguageDistances("SVO", 0.48, 0.86),
    "de": LanguageDistances("SVO/SOV", 0.42, 0.43),
    "el": LanguageDistances("SVO/VSO", 0.52, 0.83),
    "en": LanguageDistances("SVO", 0.00, 0.00),
    "es": LanguageDistances("SVO", 0.40, 0.90),
    "fr": LanguageDistances("SVO", 0.46, 0.90),
    "hi": LanguageDistances("SOV", 0.59, 0.90),
    "ru": LanguageDistances("SVO", 0.49, 0.90),
    "sw": LanguageDistances("SVO", 0.57, 1.00),
    "th": LanguageDistances("SVO", 0.56, 1.00),
    "tr": LanguageDistances("SOV", 0.70, 1.00),
    "ur": LanguageDistances("SOV", 0.67, 0.90),
    "vi": LanguageDistances("SVO", 0.57, 1.00),
    "zh": LanguageDistances("SVO", 0.57, 1.00),
}
"""Facts of table 1 that do not depend on the text; they are distances from English, so for another source they do not
hold."""
