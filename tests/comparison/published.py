"""Numbers that the paper prints: scores in percent (tables 2 and A2), and V100-days to near-maximal performance (tables
3 and A1), both rounded to one decimal; and its averages, which leave out languages with an infinite cost.
"""

from lingraft.config.systems import System

Printed = dict[str, dict[System, dict[str, float]]]
"""By task, system and language."""
_TASKS = ("xnli", "mlqa", "paws-x", "xquad")


def _tables(printed: str) -> Printed:
    """Tables by task; a task's name stands before its languages, a system's before its numbers."""
    found: Printed = {}
    for name, *cells in map(str.split, printed.strip().splitlines()):
        if name in _TASKS:
            languages, rows = cells, found.setdefault(name, {})
        else:
            rows[System(name)] = dict(zip(languages, map(float, cells), strict=True))
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
_BASE, _SMALL, _POST, _JOINT = System.BL_BASE, System.BL_SMALL, System.MINIPOST, System.MINIJOINT
AVERAGE_SCORES = {
    "xnli": {_BASE: 72.0, _SMALL: 66.3, _POST: 71.2, _JOINT: 70.3},
    "mlqa": {_BASE: 56.9, _SMALL: 51.2, _POST: 56.7, _JOINT: 56.0},
    "paws-x": {_BASE: 83.4, _SMALL: 74.5, _POST: 83.1, _JOINT: 83.5},
    "xquad": {_BASE: 62.3, _SMALL: 55.5, _POST: 62.4, _JOINT: 61.5},
}
AVERAGE_DAYS = {
    "xnli": {_BASE: 2.1, _POST: 1.6, _JOINT: 1.6},
    "mlqa": {_BASE: 1.8, _POST: 1.1, _JOINT: 1.5},
    "paws-x": {_BASE: 0.6, _POST: 0.3, _JOINT: 0.2},
    "xquad": {_BASE: 1.8, _POST: 1.1, _JOINT: 0.9},
}
TOTAL_DAYS = {_BASE: 20.9, _SMALL: 8.1, _POST: 11.3, _JOINT: 8.1}
