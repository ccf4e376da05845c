"""The labels of a task: those that its training set has, and the number of each."""

from collections.abc import Iterable, Sequence

from lingraft.errors import TextError


def labels_of(found: Iterable[str], noun: str) -> list[str]:
    """All labels of a training set, sorted.

    Args:
        found: the label of each example or word.
        noun: what to call a label in errors, such as 'tag'.

    Raises:
        TextError: fewer than two labels.
    """
    names = sorted(set(found))
    if len(names) < 2:
        raise TextError(
            f"a task needs two or more {noun}s to tell apart; the training examples have {names}. Add some with others."
        )
    return names


def numbered(labels: Sequence[str], found: Iterable[tuple[str, str]], noun: str) -> dict[str, int]:
    """The number of each of a task's labels.

    Args:
        labels: the task's.
        found: what to call each example or word in errors, and its label.
        noun: what to call a label in errors, such as 'tag'.

    Raises:
        TextError: a label is not one of the task's.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    for place, label in found:
        if label not in numbers:
            raise TextError(
                f"{place} has {noun} {label!r}; the task knows {list(labels)}. "
                f"Correct the {noun}, or finetune with examples that have it."
            )
    return numbers
