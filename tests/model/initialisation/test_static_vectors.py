"""Static vectors: pairs as a plain count gives them, the same bits however text is read, and what has no vector."""

from collections import Counter

import pytest
import scipy.sparse
import torch
from torch import Tensor

from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.initialisation import static_vectors as module
from lingraft.model.initialisation.static_vectors import MIN_COUNT, StaticVectors, static_vectors
from tests.languages_made_up import FIRST, text_of

PIECES, WIDTH = 60, 16
SIZE = PIECES + FIRST


@pytest.fixture(scope="module", name="text_NT")
def text() -> Tensor:
    return text_of(1, pieces=PIECES, blocks=120)


def computed(blocks_NT: Tensor, seed: int = 1, size: int = SIZE, width: int = WIDTH) -> StaticVectors:
    return static_vectors(blocks_in_memory(blocks_NT), size, DEFAULT_SPECIAL_IDS, width, seed)


def same(first: StaticVectors, second: StaticVectors) -> bool:
    return torch.equal(first.vectors_VW, second.vectors_VW) and torch.equal(first.counts_V, second.counts_V)


def counted_one_by_one(blocks_NT: Tensor) -> Counter[tuple[int, int]]:
    """Weights of unordered pairs within the window and between the same special pieces."""
    found: Counter[tuple[int, int]] = Counter()
    for row in blocks_NT.tolist():
        for place, first in enumerate(row):
            for distance, weight in enumerate((12, 6, 4, 3), start=1):
                between = row[place : place + distance + 1]
                if len(between) == distance + 1 and not {*between} & {*DEFAULT_SPECIAL_IDS}:
                    found[min(first, between[-1]), max(first, between[-1])] += weight
    return found


def weights(pairs_VV: scipy.sparse.csr_array) -> dict[tuple[int, int], int]:
    rows, columns = pairs_VV.tocoo().coords
    return dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), pairs_VV.data.tolist(), strict=True))


def test_pairs_are_those_that_a_plain_count_finds(text_NT: Tensor) -> None:
    blocks_NT = text_NT[:20].clone()
    blocks_NT[:, 20], blocks_NT[3, 30:33] = DEFAULT_SPECIAL_IDS.end, DEFAULT_SPECIAL_IDS.unknown
    assert weights(module._count_pairs(blocks_NT.numpy(), SIZE, DEFAULT_SPECIAL_IDS)) == counted_one_by_one(blocks_NT)


def test_pieces_on_both_sides_of_a_special_one_are_no_neighbours() -> None:
    row = torch.tensor([[5, 6, DEFAULT_SPECIAL_IDS.end, 7, 8]])
    pairs = module._count_pairs(row.numpy(), SIZE, DEFAULT_SPECIAL_IDS)
    assert [*weights(pairs)] == [(5, 6), (7, 8)]


def test_vectors_are_the_same_again_and_with_more_threads(text_NT: Tensor) -> None:
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2, 2):
            torch.set_num_threads(number)
            found.append(computed(text_NT))
    finally:
        torch.set_num_threads(threads)
    assert same(found[0], found[1])
    assert same(found[1], found[2])
    assert not torch.equal(computed(text_NT, seed=2).vectors_VW, found[0].vectors_VW)


def test_vectors_factor_positive_information(text_NT: Tensor) -> None:
    """At full width, products of vectors are those of the matrix' left factor: V Vᵀ = (M Mᵀ)^½."""
    blocks_NT = text_NT[:, 1:-1]
    counts = counted_one_by_one(blocks_NT)
    weights_VV = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    for (low, high), weight in counts.items():
        weights_VV[low, high] = weights_VV[high, low] = weight
    known = torch.bincount(blocks_NT.flatten(), minlength=SIZE) >= MIN_COUNT
    weights_VV *= known[:, None] & known
    rows_V = weights_VV.sum(1)
    contexts_V = rows_V**0.75 / (rows_V**0.75).sum()
    information_VV = (weights_VV / (rows_V[:, None] * contexts_V)).nan_to_num(0).log().clamp(min=0)
    left_VV, values_V, _ = torch.linalg.svd(information_VV)
    expected_VV = (left_VV * values_V) @ left_VV.T
    found_VW = computed(text_NT, width=SIZE).vectors_VW.double()
    assert torch.allclose(found_VW @ found_VW.T, expected_VV, atol=1e-3)


def test_rare_and_special_pieces_have_no_vector(text_NT: Tensor) -> None:
    blocks_NT = text_NT.clone()
    rare, enough = SIZE, SIZE + 1
    blocks_NT[: MIN_COUNT - 1, 30], blocks_NT[-MIN_COUNT:, 30] = rare, enough
    found = computed(blocks_NT, size=SIZE + 2)
    assert (found.counts_V[rare], found.counts_V[enough]) == (MIN_COUNT - 1, MIN_COUNT)
    assert (found.known[rare], found.known[enough]) == (False, True)
    assert not found.known[:FIRST].any()
    assert not found.counts_V[:FIRST].any()


def test_where_pairs_are_too_many_the_frequent_ones_are_kept(text_NT: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    all_pairs = module._count_pairs(text_NT.numpy(), SIZE, DEFAULT_SPECIAL_IDS)
    most = all_pairs.nnz // 3
    monkeypatch.setattr(module, "_MOST_PAIRS", most)
    kept, every = weights(module._prune_rare(all_pairs)), weights(all_pairs)
    assert most // 2 < len(kept) <= most
    assert min(kept.values()) >= max(every[pair] for pair in every.keys() - kept.keys())
    found = computed(text_NT)
    assert torch.isfinite(found.vectors_VW).all()
    assert found.known.sum() > PIECES / 2


@pytest.mark.parametrize("blocks", [0, 1])
def test_text_that_is_too_short_gives_no_vectors(text_NT: Tensor, blocks: int) -> None:
    found = computed(text_NT[:blocks, :5])
    assert not found.known.any()
    assert torch.isfinite(found.vectors_VW).all()
