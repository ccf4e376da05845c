"""Scores per class from a confusion matrix, and macro-F1, which counts rare classes as much as frequent ones.

Legend: C classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

Confusion = Sequence[Sequence[int]]
"""Counts (C true, C predicted)."""
MACRO_F1 = "macro_F1"


class ClassScore(NamedTuple):
    """Scores of one class; None where a share has nothing to divide by."""

    examples: int
    """Examples of the class, each counted once per finetuning seed if the matrix is the sum over seeds."""
    predicted: int
    """Answers that name the class."""
    recall: float | None
    """Share of the class's examples that are recognised."""
    precision: float | None
    """Share of right answers among those that name the class."""
    f1: float | None

    @property
    def never_found(self) -> bool:
        """Whether the class has examples, and none of them is recognised."""
        return self.recall == 0.0


def class_scores(confusion: Confusion) -> list[ClassScore]:
    """Return the scores of each class, in the order of the matrix."""
    found = []
    for place, row in enumerate(confusion):
        right, examples, predicted = row[place], sum(row), sum(other[place] for other in confusion)
        score = ClassScore(
            examples=examples,
            predicted=predicted,
            recall=_share(right, examples),
            precision=_share(right, predicted),
            f1=_share(2 * right, examples + predicted),
        )
        found.append(score)
    return found


def macro_f1(confusion: Confusion) -> float:
    """Return the mean F1 of the classes that have examples or are predicted, as scikit-learn has it; 0 without any."""
    scores = [score.f1 for score in class_scores(confusion) if score.f1 is not None]
    return sum(scores) / max(len(scores), 1)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
