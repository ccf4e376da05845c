"""BM25, the ranking by shared words that search engines begin with (Robertson and Zaragoza 2009; Lucene's form).

Legend: B queries of a batch, P passages.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_K1, _B = 1.2, 0.75
"""Saturation of repeated pieces and weight of a passage's length: Lucene's defaults."""


class Bm25:
    """An index of passages by their pieces."""

    def __init__(self, passages: Sequence[Sequence[int]]) -> None:
        """Index passages, each the ids of its pieces in any order."""
        lengths_P = np.array([len(ids) for ids in passages], dtype=np.float64)
        norms_P = _K1 * (1 - _B + _B * lengths_P / max(lengths_P.mean(), 1.0))
        found = defaultdict[int, list[tuple[int, int]]](list)
        for passage, ids in enumerate(passages):
            for piece, times in Counter(ids).items():
                found[piece].append((passage, times))
        self._postings = {}
        for piece, occurrences in found.items():
            rows_R, times_R = np.array(occurrences).T
            idf = math.log(1 + (len(passages) - len(rows_R) + 0.5) / (len(rows_R) + 0.5))
            self._postings[piece] = rows_R, idf * times_R / (times_R + norms_P[rows_R])
        self._passages = len(passages)

    def scores(self, queries: Sequence[Sequence[int]]) -> Tensor:
        """Return the scores (B, P), float64, of queries; 0 where no piece is shared."""
        scores_BP = np.zeros((len(queries), self._passages))
        for row, ids in enumerate(queries):
            for piece in ids:
                if piece in self._postings:
                    rows_R, weights_R = self._postings[piece]
                    scores_BP[row, rows_R] += weights_R
        return torch.from_numpy(scores_BP)
