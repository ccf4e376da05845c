"""Scores of rankings by the definitions that BEIR has, and the ranking by shared pieces."""

import math

import pytest
import torch

from lingraft.errors import TrainingError
from lingraft.tasks.bm25 import Bm25
from lingraft.tasks.ranking import Answers, evaluate_ranking, evaluate_vectors


def test_scores_of_vectors_are_accuracy_mrr_and_ndcg() -> None:
    queries_NE = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    passages_PE = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    found = evaluate_vectors(queries_NE, passages_PE, Answers.of([{0: 1.0}, {1: 1.0}, {1: 1.0}]))
    assert found.score == pytest.approx(2 / 3)
    assert found.baseline == pytest.approx(2 / 3)
    assert found.tally.found_N.tolist() == [1, 0, 1]
    assert found.others["MRR_at_10"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert found.others["nDCG_at_10"] == pytest.approx((1 + 1 / math.log2(3) + 1) / 3)


def test_a_tie_counts_against_the_answer_unless_the_other_is_one_too() -> None:
    same_PE = torch.ones(3, 2)
    assert evaluate_vectors(same_PE, same_PE, Answers.of([{0: 1.0}, {1: 1.0}, {2: 1.0}])).score == 0.0
    found = evaluate_vectors(same_PE[:1], same_PE, Answers.of([{0: 1.0, 1: 1.0, 2: 1.0}]))
    assert (found.score, found.others["nDCG_at_10"]) == (1.0, pytest.approx(1.0))


def test_several_graded_answers_are_those_of_the_definition() -> None:
    """Queries have unlike many answers; the ideal order is by gain."""
    generator = torch.Generator().manual_seed(1)
    scores_NP = torch.rand(20, 15, generator=generator)
    gains = [
        {int(p): float(1 + p % 3) for p in torch.randperm(15, generator=generator)[: 1 + n % 5]} for n in range(20)
    ]
    found = evaluate_ranking(lambda rows_B: scores_NP[rows_B], Answers.of(gains))
    first, in_ten, reciprocal, ndcg = [], [], [], []
    for scores, wanted in zip(scores_NP, gains, strict=True):
        order = scores.argsort(descending=True).tolist()[:10]
        places = [place for place, passage in enumerate(order, 1) if passage in wanted]
        first.append(order[0] in wanted)
        in_ten.append(bool(places))
        reciprocal.append(1 / places[0] if places else 0)
        dcg = sum(wanted.get(passage, 0) / math.log2(place + 1) for place, passage in enumerate(order, 1))
        best = sum(gain / math.log2(place + 1) for place, gain in enumerate(sorted(wanted.values(), reverse=True), 1))
        ndcg.append(dcg / best)
    assert found.score == pytest.approx(sum(first) / 20)
    expected = {"accuracy_at_10": sum(in_ten), "MRR_at_10": sum(reciprocal), "nDCG_at_10": sum(ndcg)}
    assert found.others == pytest.approx({name: total / 20 for name, total in expected.items()})


def test_scores_of_nan_find_nothing() -> None:
    answers = Answers.of([{row: 1.0} for row in range(12)])
    found = evaluate_ranking(lambda rows_B: torch.full((len(rows_B), 12), torch.nan), answers)
    assert {found.score, *found.others.values()} == {0.0}


def test_vectors_that_are_not_finite_are_refused() -> None:
    broken_PE = torch.eye(3)
    broken_PE[1, 0], broken_PE[2, 2] = torch.nan, torch.inf
    answers = Answers.of([{row: 1.0} for row in range(3)])
    for queries_NE, passages_PE in ((broken_PE, torch.eye(3)), (torch.eye(3), broken_PE)):
        with pytest.raises(TrainingError, match=r"vectors of 2 of 3 texts are not finite\. Check that the"):
            evaluate_vectors(queries_NE, passages_PE, answers)


def test_bm25_is_that_of_the_formula() -> None:
    passages = [[1, 2, 2, 3], [2, 4], [5, 6, 7]]
    scores_BP = Bm25(passages).scores([[2, 5], [8], [2, 2]])
    idf_2, idf_5 = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    norm = [1.2 * (0.25 + 0.75 * length / 3) for length in (4, 2, 3)]
    both = [idf_2 * 2 / (2 + norm[0]), idf_2 * 1 / (1 + norm[1])]
    assert scores_BP[0].tolist() == pytest.approx([*both, idf_5 / (1 + norm[2])])
    assert scores_BP[1].tolist() == [0.0, 0.0, 0.0]
    assert scores_BP[2].tolist() == pytest.approx([2 * both[0], 2 * both[1], 0.0])
