import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from lingraft.tasks.class_scores import class_scores, macro_f1

SOME_NEVER_FOUND = [[3, 1, 0, 0], [0, 4, 0, 2], [2, 1, 0, 0], [0, 0, 0, 0]]
"""The third class is never found; the fourth has no examples, but is predicted."""


def _answers(confusion: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted classes, one example a count."""
    pairs = [(t, p) for t, row in enumerate(confusion) for p, count in enumerate(row) for _ in range(count)]
    true, predicted = np.array(pairs).T
    return true, predicted


def _random(seed: int) -> list[list[int]]:
    drawn: list[list[int]] = np.random.default_rng(seed).poisson(1.5, (5, 5)).tolist()
    return drawn


@pytest.mark.parametrize("confusion", [SOME_NEVER_FOUND, *map(_random, range(2))])
def test_macro_f1_and_scores_per_class_are_those_of_scikit_learn(confusion: list[list[int]]) -> None:
    true, predicted = _answers(confusion)
    assert macro_f1(confusion) == pytest.approx(f1_score(true, predicted, average="macro"))
    places = range(len(confusion))
    precision, recall, f1, examples = precision_recall_fscore_support(
        true, predicted, labels=list(places), zero_division=np.nan
    )
    for place, score in enumerate(class_scores(confusion)):
        assert score.examples == examples[place]
        assert score.recall == (pytest.approx(recall[place]) if examples[place] else None)
        assert score.precision == (pytest.approx(precision[place]) if score.predicted else None)
        assert score.f1 == (pytest.approx(f1[place]) if score.predicted or score.examples else None)


def test_only_a_class_with_examples_of_which_none_is_recognised_is_never_found() -> None:
    assert [score.never_found for score in class_scores(SOME_NEVER_FOUND)] == [False, False, True, False]


def test_without_any_example_macro_f1_is_zero() -> None:
    assert macro_f1([[0, 0], [0, 0]]) == 0.0
