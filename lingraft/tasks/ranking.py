"""Scores of ranked passages: accuracy@1 and @10, MRR@10 and nDCG@10, as BEIR and MTEB define them.

Legend: N queries, B queries of a batch, P passages, K answers of a query at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.errors import TrainingError
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.task_kind import TaskEvaluation

DEPTH = 10
"""Passages that MRR and nDCG look at for each query."""
_QUERIES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Answers:
    """Passages that answer each query, and how well."""

    passages_NK: Tensor
    """Numbers of passages, int64; anything where the gain is 0."""
    gains_NK: Tensor
    """Gains, float64; 0 behind a query's last answer."""

    @classmethod
    def of(cls, gains: Sequence[Mapping[int, float]]) -> Self:
        """Make answers of each query's gains, above 0, by number of passage; one at least."""
        most = max(map(len, gains))
        passages = [[*found, *[0] * (most - len(found))] for found in gains]
        values = [[*found.values(), *[0.0] * (most - len(found))] for found in gains]
        return cls(torch.tensor(passages), torch.tensor(values, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.passages_NK)

    @property
    def baseline(self) -> float:
        """Accuracy@1 of always giving the passage that answers most queries."""
        return float(self.passages_NK[self.gains_NK > 0].bincount().max() / len(self))


def require_finite(vectors_NE: Tensor) -> None:
    """Refuse vectors of texts, by which nothing can be ranked, if one has an entry that is NaN or infinite."""
    wrong = int((~vectors_NE.isfinite().all(1)).sum())
    if wrong:
        raise TrainingError(
            f"vectors of {wrong:,} of {len(vectors_NE):,} texts are not finite. Check that the weights are; if so, "
            "compute with precision = 'fp32', or finetune or adapt again with a lower learning_rate."
        )


def evaluate_vectors(queries_NE: Tensor, passages_PE: Tensor, answers: Answers) -> TaskEvaluation:
    """Rank passages by the cosine of vectors."""
    require_finite(queries_NE)
    require_finite(passages_PE)
    queries_NE, passages_EP = F.normalize(queries_NE), F.normalize(passages_PE).T
    return evaluate_ranking(lambda rows_B: queries_NE[rows_B] @ passages_EP, answers)


def evaluate_ranking(scores: Callable[[Tensor], Tensor], answers: Answers) -> TaskEvaluation:
    """Evaluate a ranking by scores (B, P), which a function returns of queries by their numbers (B); the highest leads.

    A passage that is no answer counts against the answers whose score it has; a score of NaN finds nothing.
    """
    batches = torch.arange(len(answers)).split(_QUERIES_AT_ONCE)
    places_NK = torch.cat([_places(scores(rows_B), answers, rows_B) for rows_B in batches])
    gains_NK = answers.gains_NK
    first_N = places_NK.where(gains_NK > 0, torch.inf).min(1).values
    tally = ItemCounts.of((first_N == 1).numpy())
    ideal_NK = gains_NK.sort(1, descending=True).values
    order_K = torch.arange(1, gains_NK.shape[1] + 1, dtype=torch.float64)
    ndcg_N = _dcg(gains_NK, places_NK) / _dcg(ideal_NK, order_K)
    return TaskEvaluation(
        score=tally.score,
        baseline=answers.baseline,
        tally=tally,
        others={
            f"accuracy_at_{DEPTH}": float((first_N <= DEPTH).double().mean()),
            f"MRR_at_{DEPTH}": float((1 / first_N).where(first_N <= DEPTH, 0.0).mean()),
            f"nDCG_at_{DEPTH}": float(ndcg_N.mean()),
        },
    )


def _places(scores_BP: Tensor, answers: Answers, rows_B: Tensor) -> Tensor:
    """Places from 1 (B, K) of each query's answers, float64."""
    passages_BK, is_answer_BK = answers.passages_NK[rows_B], answers.gains_NK[rows_B] > 0
    own_BK = scores_BP.gather(1, passages_BK).where(is_answer_BK, -torch.inf)
    # A comparison with NaN is false, so that what is not below an answer counts against it.
    at_least_BK = torch.stack([(~(scores_BP < own_B[:, None])).sum(1) for own_B in own_BK.T], dim=1)
    answers_at_least_BK = torch.stack([(~(own_BK < own_B[:, None]) & is_answer_BK).sum(1) for own_B in own_BK.T], dim=1)
    order_BK = own_BK.argsort(dim=1, descending=True, stable=True).argsort(1)
    return (at_least_BK - answers_at_least_BK + order_BK + 1).double()


def _dcg(gains: Tensor, places: Tensor) -> Tensor:
    """Discounted gains (N) of answers at their places, from 1; those behind `DEPTH` have none."""
    return (gains / (places + 1).log2()).where(places <= DEPTH, 0.0).sum(1)
