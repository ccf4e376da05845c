"""Static vectors of a vocabulary's pieces, counted from a language's blocks.

Pieces that stand near each other are counted, the counts become positive pointwise mutual information with smoothed
contexts, and a truncated SVD makes a vector of each row (Levy, Goldberg and Dagan 2015, sections 3.1 and 3.3). Text is
read once, a few million tokens at a time, and the number of pairs in memory is bounded.

Pairs are unordered: a matrix of them is sparse, and filled on and above its diagonal only.

Legend: N blocks, T tokens of a block, V vocabulary, P pairs of pieces, W width of the vectors.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.artifacts.token_ids import Ids
from lingraft.console import with_progress
from lingraft.data.rng import make_generator, single_threaded
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.pieces import SpecialIds

if TYPE_CHECKING:
    import scipy.sparse

MIN_COUNT = 5
"""Pieces that occur less often get no vector: chance decides too much of where they stand."""
_WEIGHTS = (12, 6, 4, 3)
"""A neighbour at distance 1, 2, 3 or 4 counts in inverse proportion to it; in twelfths, so that sums are exact."""
WINDOW = len(_WEIGHTS)
"""Largest distance at which pieces are neighbours."""
_CONTEXT_SMOOTHING = 0.75
"""Exponent of the contexts' counts; without it, rare contexts have too much information (Levy et al., section 3.2)."""
_TOKENS_AT_ONCE = 1_000_000
_PAIRS_AT_ONCE = 1_000_000
_MOST_PAIRS = 6_000_000
"""Different pairs that are kept in memory, which bounds it to 1 GB; beyond that the least frequent ones are dropped."""
_KEPT_SHARE = 0.8
_OVERSAMPLING, _POWER_ITERATIONS = 32, 4
"""Settings of the randomised SVD (Halko, Martinsson and Tropp 2011, algorithm 4.4)."""

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class StaticVectors:
    """One vector a piece, and how often the piece occurs."""

    vectors_VW: Tensor
    """float32; zeros for special pieces and those that occur fewer than `MIN_COUNT` times."""
    counts_V: Tensor
    """int64, occurrences in the training split."""

    def first(self, count: int) -> "StaticVectors":
        """Return those of the first pieces alone."""
        return StaticVectors(self.vectors_VW[:count], self.counts_V[:count])

    @property
    def known(self) -> Tensor:
        """Whether each piece has a vector, (V)."""
        return self.vectors_VW.any(1)


def static_vectors(blocks: Blocks, vocabulary: int, special: SpecialIds, width: int, seed: int) -> StaticVectors:
    """Count and factor, in bounded memory; the same bits for any number of threads.

    Args:
        blocks: training split of the language.
        vocabulary: pieces of the tokenizer.
        special: ids that are no text, which separate what stands on both sides.
        width: of the vectors; at most the number of pieces that occur often enough.
        seed: of the SVD's random start.
    """
    import scipy.sparse  # lazy: most trainings count no vectors

    counts_V = np.zeros(vocabulary, np.int64)
    pairs_VV = scipy.sparse.csr_array((vocabulary, vocabulary), dtype=np.int64)
    step = max(1, _TOKENS_AT_ONCE // blocks.block_tokens)
    for start in with_progress(range(0, len(blocks), step), "count pairs of pieces", "part", -(-len(blocks) // step)):
        ids_NT = blocks.take(torch.arange(start, min(start + step, len(blocks)))).numpy()
        counts_V += np.bincount(ids_NT.ravel(), minlength=vocabulary)
        pairs_VV = _prune_rare(pairs_VV + _count_pairs(ids_NT, vocabulary, special))
    counts_V[list(special)] = 0
    information_VV = _positive_pmi(_restrict(pairs_VV, counts_V >= MIN_COUNT))
    del pairs_VV  # tens of megabytes
    with single_threaded():
        return StaticVectors(_randomised_svd(_tensor(information_VV), width, seed), torch.from_numpy(counts_V))


def _count_pairs(ids_NT: Ids, vocabulary: int, special: SpecialIds) -> "scipy.sparse.csr_array":
    """Weights (V, V) within the window; it does not reach across special pieces, which stand between documents."""
    import scipy.sparse

    text_NT = ~np.isin(ids_NT, special)
    unbroken_NT = text_NT
    pairs_VV = scipy.sparse.csr_array((vocabulary, vocabulary), dtype=np.int64)
    for distance, weight in enumerate(_WEIGHTS, start=1):
        unbroken_NT = unbroken_NT[:, :-1] & text_NT[:, distance:]
        first_P, second_P = ids_NT[:, :-distance][unbroken_NT], ids_NT[:, distance:][unbroken_NT]
        keys_P = np.minimum(first_P, second_P) * vocabulary + np.maximum(first_P, second_P)
        keys_P.sort()
        pairs_VV += weight * _count_keys(keys_P, vocabulary)
    return pairs_VV


def _count_keys(keys_P: Longs, vocabulary: int) -> "scipy.sparse.csr_array":
    """Count each pair (V, V) among sorted keys, smaller id * V + larger id."""
    import scipy.sparse

    starts = np.flatnonzero(np.diff(keys_P, prepend=-1))
    counts_P, keys_P = np.diff(starts, append=len(keys_P)), keys_P[starts]
    ends_V = np.searchsorted(keys_P, np.arange(vocabulary + 1) * vocabulary)
    return scipy.sparse.csr_array((counts_P, keys_P % vocabulary, ends_V), shape=(vocabulary, vocabulary))


def _prune_rare(pairs_VV: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array":
    """The most frequent pairs, if there are too many (lossy counting, Manku and Motwani 2002).

    Of pairs that tie at the limit, those that there is room for are spread evenly over the vocabulary.
    """
    if pairs_VV.nnz <= _MOST_PAIRS:
        return pairs_VV
    weights_P, most = pairs_VV.data, int(_KEPT_SHARE * _MOST_PAIRS)
    limit = np.partition(weights_P, -most)[-most]
    chosen_P = weights_P > limit
    tied, room = np.flatnonzero(weights_P == limit), most - np.count_nonzero(chosen_P)
    chosen_P[tied[np.arange(room) * len(tied) // room]] = True
    return _select(pairs_VV, _rows(pairs_VV), chosen_P)


def _restrict(pairs_VV: "scipy.sparse.csr_array", allowed_V: NDArray[np.bool_]) -> "scipy.sparse.csr_array":
    rows_P = _rows(pairs_VV)
    return _select(pairs_VV, rows_P, allowed_V[rows_P] & allowed_V[pairs_VV.indices])


def _rows(matrix_VV: "scipy.sparse.csr_array") -> NDArray[np.int32]:
    """Row of every number that is stored."""
    return np.repeat(np.arange(matrix_VV.shape[0], dtype=np.int32), np.diff(matrix_VV.indptr))


def _select(
    matrix_VV: "scipy.sparse.csr_array", rows_P: NDArray[np.int32], chosen_P: NDArray[np.bool_]
) -> "scipy.sparse.csr_array":
    import scipy.sparse

    ends_V = np.concatenate([[0], np.cumsum(np.bincount(rows_P[chosen_P], minlength=matrix_VV.shape[0]))])
    parts = matrix_VV.data[chosen_P], matrix_VV.indices[chosen_P], ends_V
    return scipy.sparse.csr_array(parts, shape=matrix_VV.shape)


def _positive_pmi(pairs_VV: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array":
    """Positive pointwise mutual information (V, V) of a piece (row) and its context (column)."""
    import scipy.sparse

    diagonal_VV = scipy.sparse.diags_array(pairs_VV.diagonal(), format="csr", dtype=np.int64)
    weights_VV = pairs_VV + (pairs_VV - diagonal_VV).T.tocsr()
    totals_V = weights_VV.sum(axis=1).astype(np.float64)
    contexts_V = totals_V**_CONTEXT_SMOOTHING
    contexts_V /= contexts_V.sum() or 1
    rows_P, values_P = _rows(weights_VV), np.empty(weights_VV.nnz, np.float32)
    for start in range(0, weights_VV.nnz, _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        expected_P = totals_V[rows_P[part]] * contexts_V[weights_VV.indices[part]]
        values_P[part] = np.log(weights_VV.data[part] / expected_P)
    weights_VV.data = values_P
    return _select(weights_VV, rows_P, values_P > 0)


def _tensor(matrix_VV: "scipy.sparse.csr_array") -> Tensor:
    starts, columns, values = map(torch.from_numpy, (matrix_VV.indptr, matrix_VV.indices, matrix_VV.data))
    with warnings.catch_warnings():  # PyTorch calls the format a beta of its own, which is nothing to tell a user of
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(starts, columns, values, matrix_VV.shape, check_invariants=False)


def _randomised_svd(matrix_VV: Tensor, width: int, seed: int) -> Tensor:
    """Left singular vectors times the roots of singular values (Levy et al., section 3.3), by a randomised SVD."""
    size = matrix_VV.shape[0]
    transposed_VV = matrix_VV.to_sparse_csc().t()
    generator = make_generator("static vectors", seed)
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
