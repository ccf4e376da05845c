"""Spans of named entities from the tags of words, and their F1: as seqeval by default, and so as conlleval.

What IOB1, IOB2 and IOBES share is read leniently: a span begins wherever a tag other than O does not continue the one
before it, also with I- after O (as IOB1 writes it, and as models predict it). A tag of another form, such as a part of
speech, is that of one word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from lingraft.tasks.item_counts import ItemCounts

OUTSIDE = "O"


class Span(NamedTuple):
    """A named entity: words `start` to `end`, one behind the last."""

    kind: str
    start: int
    end: int


class SpanScores(NamedTuple):
    """Shares, 0 to 1; 0 where there is nothing to divide by."""

    precision: float
    recall: float
    f1: float


def spans(tags: Sequence[str]) -> set[Span]:
    """Return the entities of one sentence.

    Args:
        tags: "O"; one of B I E S (beginning, inside, end, single), a dash, and the kind of entity; or a word's own tag.
    """
    found: list[Span] = []
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags])):
        if tag == OUTSIDE:
            continue
        if _continues(before, tag):
            kind, start, _ = found.pop()
        else:
            kind, start = _kind(tag), place
        found.append(Span(kind, start, place + 1))
    return set(found)


def span_scores(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> SpanScores:
    """Return micro-averages over all spans of all sentences; a span is right if kind, beginning and end are."""
    counts: Counter[str] = Counter()
    for one, other in zip(true, predicted, strict=True):
        actual, claimed = spans(one), spans(other)
        counts.update(true=len(actual), predicted=len(claimed), right=len(actual & claimed))
    return SpanScores(
        precision=_share(counts["right"], counts["predicted"]),
        recall=_share(counts["right"], counts["true"]),
        f1=_share(2 * counts["right"], counts["true"] + counts["predicted"]),
    )


def span_tally(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> ItemCounts:
    """Return the counts of micro F1 by sentence: spans that are right count twice, out of true and predicted ones."""
    pairs = [(spans(one), spans(other)) for one, other in zip(true, predicted, strict=True)]
    right = [2 * len(actual & claimed) for actual, claimed in pairs]
    return ItemCounts.of(right, [len(actual) + len(claimed) for actual, claimed in pairs])


def _continues(before: str, tag: str) -> bool:
    return before[:2] in ("B-", "I-") and tag[:2] in ("I-", "E-") and _kind(before) == _kind(tag)


def _kind(tag: str) -> str:
    return tag[2:] if tag[:2] in ("B-", "I-", "E-", "S-") else tag


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
