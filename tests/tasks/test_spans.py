import random

import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from lingraft.tasks.spans import Span, span_scores, spans


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", set()),
        ("I-PER I-PER O I-LOC", {Span("PER", 0, 2), Span("LOC", 3, 4)}),
        ("I-PER B-PER", {Span("PER", 0, 1), Span("PER", 1, 2)}),
        ("B-PER I-LOC", {Span("PER", 0, 1), Span("LOC", 1, 2)}),
        ("B-PER I-PER E-PER S-PER", {Span("PER", 0, 3), Span("PER", 3, 4)}),
        ("B-work-of-art I-work-of-art", {Span("work-of-art", 0, 2)}),
        (
            "NOUN INTJ INTJ V-PRS B I E",
            {Span(tag, place, place + 1) for place, tag in enumerate(["NOUN", "INTJ", "INTJ", "V-PRS", "B", "I", "E"])},
        ),
    ],
)
def test_spans_begin_where_a_tag_does_not_continue_the_one_before(tags: str, expected: set[Span]) -> None:
    assert spans(tags.split()) == expected


def test_nothing_to_find_and_nothing_found_scores_zero() -> None:
    assert span_scores([["O"]], [["O"]]) == (0.0, 0.0, 0.0)


def test_any_tags_whatsoever_score_as_seqeval_scores_them() -> None:
    draw = random.Random(20_221_210)
    tags = ["O", "O", "O", *(f"{place}-{kind}" for place in "BIES" for kind in ("PER", "LOC", "a-b"))]
    for _ in range(60):
        true = [[draw.choice(tags) for _ in range(draw.randint(1, 9))] for _ in range(5)] + [["B-PER"]]
        predicted = [[tag if draw.random() < 0.6 else draw.choice(tags) for tag in some] for some in true]
        for some in true:
            assert {(found.kind, found.start, found.end - 1) for found in spans(some)} == set(get_entities(some))
        official = (score(true, predicted, zero_division=0) for score in (precision_score, recall_score, f1_score))
        assert span_scores(true, predicted) == pytest.approx(tuple(official))
