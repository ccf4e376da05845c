"""Static vectors of a vocabulary's pieces, counted from a language's blocks.

Pieces that stand near each other are counted, the counts become positive pointwise mutual information with smoothed
contexts, and a truncated SVD makes a vector of each row (Levy, Goldberg and Dagan 2015, sections 3.1 and 3.3). Text is
read once, a few million tokens at a time, and the number of pairs in memory is bounded.

Legend: N blocks, T tokens of a block, V vocabulary, P pairs of pieces, W width of the vectors.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.ids import Ids
from lingraft.noise import generator_of, one_thread
from lingraft.pieces import SpecialIds
from lingraft.progress import counted
from lingraft.shards import Blocks

MIN_COUNT = 5
"""Pieces that occur less often get no vector: chance decides too much of where they stand."""
_WEIGHTS = (12, 6, 4, 3)
"""A neighbour at distance 1, 2, 3 or 4 counts in inverse proportion to it; in twelfths, so that sums are exact."""
WINDOW = len(_WEIGHTS)
"""Largest distance at which pieces are neighbours."""
_DISTANCE_BITS = 2
_CONTEXT_SMOOTHING = 0.75
"""Exponent of the contexts' counts; without it, rare contexts have too much information (Levy et al., section 3.2)."""
_TOKENS_AT_ONCE = 2_000_000
_MOST_PAIRS = 6_000_000
"""Different pairs that are kept in memory, which bounds it to 1 GB; beyond that the least frequent ones are dropped."""
_KEPT_SHARE = 0.8
_OVERSAMPLING, _POWER_ITERATIONS = 32, 4
"""Of the randomised SVD (Halko, Martinsson and Tropp 2011, algorithm 4.4)."""

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class StaticVectors:
    """One vector a piece, and how often the piece occurs."""

    vectors_VW: Tensor
    """float32; zeros for special pieces and those that occur fewer than `MIN_COUNT` times."""
    counts_V: Tensor
    """int64, occurrences in the training split."""

    @property
    def known(self) -> Tensor:
        """Whether each piece has a vector, (V)."""
        return self.vectors_VW.any(1)


class _Pairs(NamedTuple):
    """Unordered pairs of pieces that stand near each other, by rising key."""

    keys_P: Longs
    """smaller id * V + larger id."""
    weights_P: Longs


def static_vectors(blocks: Blocks, vocabulary: int, special: SpecialIds, width: int, seed: int) -> StaticVectors:
    """Count and factor, in bounded memory; the same bits for any number of threads.

    Args:
        blocks: training split of the language.
        vocabulary: pieces of the tokenizer.
        special: ids that are no text, which separate what stands on both sides.
        width: of the vectors; at most the number of pieces that occur often enough.
        seed: of the SVD's random start.
    """
    counts_V = np.zeros(vocabulary, np.int64)
    pairs = _Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    step = max(1, _TOKENS_AT_ONCE // blocks.block_tokens)
    for start in counted(range(0, len(blocks), step), "count pairs of pieces", "part", -(-len(blocks) // step)):
        ids_NT = blocks.take(torch.arange(start, min(start + step, len(blocks)))).numpy()
        counts_V += np.bincount(ids_NT.ravel(), minlength=vocabulary)
        pairs = _bounded(_merged(pairs, _pairs_of(ids_NT, vocabulary, special)))
    counts_V[list(special)] = 0
    pairs = _among(pairs, counts_V >= MIN_COUNT)
    with one_thread():
        return StaticVectors(_factored(_information(pairs, vocabulary), width, seed), torch.from_numpy(counts_V))


def _pairs_of(ids_NT: Ids, vocabulary: int, special: SpecialIds) -> _Pairs:
    """Pairs within the window; they do not reach across special pieces, which stand between documents."""
    text_NT = ~np.isin(ids_NT, special)
    unbroken_NT, found = text_NT, []
    for distance in range(1, WINDOW + 1):
        first_NT, second_NT = ids_NT[:, :-distance], ids_NT[:, distance:]
        unbroken_NT = unbroken_NT[:, :-1] & text_NT[:, distance:]
        first_P, second_P = first_NT[unbroken_NT], second_NT[unbroken_NT]
        keys_P = np.minimum(first_P, second_P) * vocabulary + np.maximum(first_P, second_P)
        found.append(keys_P << _DISTANCE_BITS | (distance - 1))
    keys_P = np.concatenate(found)
    keys_P.sort()
    weights_P = np.array(_WEIGHTS)[keys_P & (len(_WEIGHTS) - 1)]
    return _summed(keys_P >> _DISTANCE_BITS, weights_P)


def _merged(first: _Pairs, second: _Pairs) -> _Pairs:
    keys_P = np.concatenate([first.keys_P, second.keys_P])
    order_P = np.argsort(keys_P, kind="stable")  # merges two sorted runs in linear time
    return _summed(keys_P[order_P], np.concatenate([first.weights_P, second.weights_P])[order_P])


def _summed(keys_P: Longs, weights_P: Longs) -> _Pairs:
    """Every key once, of sorted keys."""
    if not len(keys_P):
        return _Pairs(keys_P, weights_P)
    starts = np.flatnonzero(np.concatenate([[True], keys_P[1:] != keys_P[:-1]]))
    return _Pairs(keys_P[starts], np.add.reduceat(weights_P, starts))


def _bounded(pairs: _Pairs) -> _Pairs:
    """The most frequent pairs, if there are too many (lossy counting, Manku and Motwani 2002).

    Of pairs that tie at the limit, those that there is room for are spread evenly over the vocabulary.
    """
    if len(pairs.keys_P) <= _MOST_PAIRS:
        return pairs
    most = int(_KEPT_SHARE * _MOST_PAIRS)
    limit = np.partition(pairs.weights_P, -most)[-most]
    chosen_P = pairs.weights_P > limit
    tied, room = np.flatnonzero(pairs.weights_P == limit), most - np.count_nonzero(chosen_P)
    chosen_P[tied[np.arange(room) * len(tied) // room]] = True
    return _where(pairs, chosen_P)


def _among(pairs: _Pairs, allowed_V: NDArray[np.bool_]) -> _Pairs:
    size = len(allowed_V)
    return _where(pairs, allowed_V[pairs.keys_P // size] & allowed_V[pairs.keys_P % size])


def _where(pairs: _Pairs, chosen_P: NDArray[np.bool_]) -> _Pairs:
    return _Pairs(pairs.keys_P[chosen_P], pairs.weights_P[chosen_P])


def _information(pairs: _Pairs, vocabulary: int) -> Tensor:
    """Positive pointwise mutual information (V, V), sparse, of a piece (row) and its context (column)."""
    low_P, high_P = np.divmod(pairs.keys_P, vocabulary)
    apart_P = low_P != high_P
    rows_P, columns_P = np.concatenate([low_P, high_P[apart_P]]), np.concatenate([high_P, low_P[apart_P]])
    weights_P = np.concatenate([pairs.weights_P, pairs.weights_P[apart_P]]).astype(np.float64)
    totals_V = np.bincount(rows_P, weights_P, vocabulary)
    contexts_V = totals_V**_CONTEXT_SMOOTHING
    contexts_V /= contexts_V.sum() or 1
    values_P = totals_V[rows_P].astype(np.float64)
    values_P *= contexts_V[columns_P]
    np.log(np.divide(weights_P, values_P, out=values_P), out=values_P)
    values_P = values_P.astype(np.float32)
    positive_P = values_P > 0
    return _sparse(rows_P[positive_P], columns_P[positive_P], values_P[positive_P], vocabulary)


def _sparse(rows_P: Longs, columns_P: Longs, values_P: NDArray[np.float32], size: int) -> Tensor:
    order_P = np.argsort(rows_P * size + columns_P)
    ends_V = np.concatenate([[0], np.cumsum(np.bincount(rows_P, minlength=size))]).astype(np.int32)
    parts = ends_V, columns_P[order_P].astype(np.int32), values_P[order_P]
    starts, columns, values = map(torch.from_numpy, parts)
    with warnings.catch_warnings():  # PyTorch calls the format a beta of its own, which is nothing to tell a user of
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(starts, columns, values, (size, size), check_invariants=False)


def _factored(matrix_VV: Tensor, width: int, seed: int) -> Tensor:
    """Left singular vectors times the roots of singular values (Levy et al., section 3.3), by a randomised SVD."""
    size = matrix_VV.shape[0]
    transposed_VV = matrix_VV.to_sparse_csc().t()
    generator = generator_of("static vectors", seed)
    start = torch.empty(size, min(width + _OVERSAMPLING, size)).normal_(generator=generator)
    basis_VK = _orthonormal(matrix_VV @ start)
    for _ in range(_POWER_ITERATIONS):
        basis_VK = _orthonormal(matrix_VV @ _orthonormal(transposed_VV @ basis_VK))
    left_KK, values_K, _ = torch.linalg.svd((transposed_VV @ basis_VK).T, full_matrices=False)
    vectors_VK = basis_VK @ left_KK * values_K.sqrt()
    vectors_VW = torch.zeros(size, width)
    vectors_VW[:, : vectors_VK.shape[1]] = vectors_VK[:, :width]
    known_V = matrix_VV.crow_indices().diff() > 0
    return vectors_VW * known_V[:, None]


def _orthonormal(columns_VK: Tensor) -> Tensor:
    return torch.linalg.qr(columns_VK)[0]
