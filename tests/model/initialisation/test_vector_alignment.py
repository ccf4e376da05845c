"""A map between two languages: found where their text is alike, known to have failed where it is not."""

from dataclasses import astuple
from typing import Any

import pytest
import torch
from torch import Tensor

from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.initialisation import vector_alignment as module
from lingraft.model.initialisation.seed_pairs import seed_pairs
from lingraft.model.initialisation.static_vectors import StaticVectors, static_vectors
from lingraft.model.initialisation.vector_alignment import AGREEMENT, AlignedVectors, PiecePairs, align
from tests.languages_made_up import FIRST, Spelt, renamed, text_of

PIECES, WIDTH = 120, 24
SIZE = PIECES + FIRST
IDS = renamed(PIECES, seed=3)
"""Id in the target of every source piece."""


def vectors(seed: int, chain: int = 1, ids: Tensor = IDS) -> StaticVectors:
    return static_vectors(blocks_in_memory(ids[text_of(seed, chain, PIECES, 400)]), SIZE, DEFAULT_SPECIAL_IDS, WIDTH, 1)


SOURCE, TARGET, STRANGER = vectors(1, ids=torch.arange(SIZE)), vectors(2), vectors(3, chain=2)
NOTHING = StaticVectors(torch.zeros(SIZE, WIDTH), torch.zeros(SIZE, dtype=torch.long))


def pairs(count: int, first: int = 20) -> PiecePairs:
    return PiecePairs(torch.arange(FIRST + first, FIRST + first + count), IDS[FIRST + first : FIRST + first + count])


def aligned(target: StaticVectors = TARGET, known: PiecePairs | None = None, seed: int = 1) -> AlignedVectors:
    return align(SOURCE, target, pairs(16) if known is None else known, seed)


@pytest.fixture(scope="module")
def found() -> AlignedVectors:
    return aligned()


def accuracy(alignment: AlignedVectors) -> float:
    nearest_V = (alignment.source_VW @ alignment.target_VW.T).argmax(1)
    return (nearest_V == IDS)[FIRST:].float().mean().item()


def same(first: AlignedVectors, second: AlignedVectors) -> bool:
    pairs_of_values = zip(astuple(first), astuple(second), strict=True)
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs_of_values)


def test_a_language_that_is_another_renamed_is_found_from_few_pairs(found: AlignedVectors) -> None:
    assert accuracy(found) > 0.9
    assert found.succeeded
    assert found.agreement > 2 * AGREEMENT
    assert found.similarity > found.chance_similarity + 0.1
    assert found.known_pairs == 16
    assert torch.allclose(found.target_VW[FIRST:].norm(dim=1), torch.ones(PIECES))
    assert not found.target_VW[:FIRST].any()


def test_unrelated_text_is_known_to_have_failed(found: AlignedVectors) -> None:
    failed = aligned(STRANGER)
    assert not failed.succeeded
    assert abs(failed.agreement) < AGREEMENT / 2
    assert accuracy(failed) < 0.3


def test_an_alignment_is_the_same_again_and_with_more_threads(found: AlignedVectors) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads % 2 + 1)
        again = aligned()
    finally:
        torch.set_num_threads(threads)
    assert same(again, found)


def test_agreement_is_of_halves_that_have_no_pair_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [*learned(monkeypatch, pairs(31))]
    first, second = (set(half.target_P.tolist()) for half, _ in halves)
    assert not first & second
    assert first | second == set(pairs(31).target_P.tolist())
    assert len(second) == 15


def test_pairs_are_hidden_only_where_halves_do_not_agree_clearly_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [visible for _, visible in learned(monkeypatch, pairs(60))] == [1.0, 1.0]
    monkeypatch.setattr(module, "CLEAR_AGREEMENT", 1.1)
    hidden = [visible for _, visible in learned(monkeypatch, pairs(60))]
    assert hidden[:2] == [1.0, 1.0]
    assert max(hidden[2:]) < 1


def learned(monkeypatch: pytest.MonkeyPatch, known: PiecePairs) -> list[tuple[PiecePairs, float]]:
    """Known pairs that each map of an alignment is learned from, and the share of all pairs it sees at first."""
    calls: list[tuple[PiecePairs, float]] = []
    self_learn = module._self_learn

    def recorded(spaces: Any, frequent: Any, half: PiecePairs, visible: float, generator: torch.Generator) -> Tensor:
        calls.append((half, visible))
        return self_learn(spaces, frequent, half, visible, generator)

    with monkeypatch.context() as patched:
        patched.setattr(module, "_self_learn", recorded)
        aligned(known=known)
    return sorted(calls, key=lambda call: (-call[1], -len(call[0].target_P)))


def test_known_pairs_hold_the_map_where_text_says_otherwise() -> None:
    """Unrelated text says nothing of known pairs, so that only they bring those together."""
    known = pairs(PIECES // 2, first=0)
    failed = aligned(STRANGER, known)
    cosines_P = (failed.source_VW[known.source_P] * failed.target_VW[known.target_P]).sum(1)
    others_P = (failed.source_VW[FIRST + PIECES // 2 :] * failed.target_VW[IDS[FIRST + PIECES // 2 :]]).sum(1)
    assert cosines_P.mean() > others_P.mean() + 0.2


def test_a_piece_that_is_near_to_everybody_is_not_everybodys_nearest() -> None:
    similarity_CC = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.3, 0.8], *[[0.9, 0.0, 0.0]] * 10])
    spaces, every = module._Spaces(torch.eye(12), similarity_CC.T), module._Spaces(torch.arange(12), torch.arange(3))
    found = module._NeighbourSearch(spaces, every).nearest(torch.eye(12))
    assert found.forward_C[:3].tolist() == [1, 2, 0]
    assert torch.allclose(found.there_C[:3], torch.tensor([0.8, 0.8, 0.9]))
    assert found.similarity <= 0.9


def test_without_vectors_it_has_failed() -> None:
    assert_failed(aligned(NOTHING))
    assert_failed(align(NOTHING, TARGET, pairs(16), 1))


def assert_failed(alignment: AlignedVectors) -> None:
    assert not alignment.succeeded
    assert_finite(alignment)


def assert_finite(alignment: AlignedVectors) -> None:
    assert all(
        torch.isfinite(torch.as_tensor(value)).all() for value in astuple(alignment) if not isinstance(value, str)
    )


def few(vectors: StaticVectors, ids: Tensor) -> StaticVectors:
    """Only some pieces have a vector."""
    kept_V1 = torch.zeros(SIZE, 1)
    kept_V1[ids] = 1
    return StaticVectors(vectors.vectors_VW * kept_V1, vectors.counts_V)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_languages_of_few_pieces_with_a_vector_are_no_trouble(count: int) -> None:
    """Fewer than the width, and than neighbours of CSLS."""
    some = torch.arange(FIRST, FIRST + count)
    assert_finite(align(few(SOURCE, some), few(TARGET, IDS[some]), pairs(count, first=0), 1))
    assert_finite(align(SOURCE, few(TARGET, IDS[some]), pairs(count, first=0), 1))


def test_starts_are_shared_pieces_then_cognates_then_profiles() -> None:
    names = [f"word{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(PIECES)]
    there = ["" for _ in names]
    for number, new in enumerate((IDS[FIRST:] - FIRST).tolist()):
        there[new] = names[number] if number < 10 else f"{names[number][::-1]}x"
    source, target = Spelt(*names[:-2], "Nationale", "музыкант"), Spelt(*there)
    place = int(IDS[-2]) - FIRST, int(IDS[-1]) - FIRST
    texts = [*there]
    texts[place[0]], texts[place[1]] = "nacionale", "muzykant"
    target = Spelt(*texts)
    found = dict(seed_pairs(source, target, SOURCE, TARGET))
    assert [*found] == ["shared pieces", "shared pieces and cognates", "similarity profiles"]
    ten = {(FIRST + number, int(IDS[FIRST + number])) for number in range(10)}
    assert chosen(found["shared pieces"]) == ten
    assert chosen(found["shared pieces and cognates"]) >= ten | {(SIZE - 2, int(IDS[-2])), (SIZE - 1, int(IDS[-1]))}
    profiles = found["similarity profiles"]
    assert len(profiles.source_P) == PIECES
    assert (IDS[profiles.source_P] == profiles.target_P).float().mean() > 5 / PIECES


def test_starts_of_a_language_without_vectors_are_empty_but_for_shared_pieces() -> None:
    pieces = Spelt(*(f"word{number}" for number in range(PIECES)))
    found = dict(seed_pairs(pieces, pieces, SOURCE, NOTHING))
    assert {name: len(each.source_P) for name, each in found.items()} == {
        "shared pieces": PIECES,
        "shared pieces and cognates": PIECES,
        "similarity profiles": 0,
    }


def chosen(pairs: PiecePairs) -> set[tuple[int, int]]:
    return {*zip(pairs.source_P.tolist(), pairs.target_P.tolist(), strict=True)}
