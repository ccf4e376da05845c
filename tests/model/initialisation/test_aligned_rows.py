"""Rows from an alignment: means of neighbours or translations, copies where meanings agree, fitted where it failed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation import aligned_rows
from lingraft.model.initialisation.aligned_rows import AlignedRows, AlignmentResource, align_rows
from lingraft.model.initialisation.initial_rows import InitialRows, initialise_rows
from lingraft.model.initialisation.seed_pairs import seed_pairs
from lingraft.model.initialisation.static_vectors import StaticVectors, static_vectors
from lingraft.model.initialisation.translation import TranslationTable
from lingraft.model.initialisation.vector_alignment import align
from tests.languages_made_up import FIRST, Spelt, renamed, text_of

PIECES, WIDTH, ROW = 120, 24, 12
SIZE = PIECES + FIRST
IDS = renamed(PIECES, seed=3)
SHARED = range(20, 50)
"""Meanings, counted from the first piece, that both languages write alike."""
FRIENDS = (60, 61)
"""Meanings whose word in the target is spelt as the source spells the other of them."""
MEANING_OF_DIGITS, DIGITS = 70, 71
"""The target writes "7" where text says that it means something else than the source's."""
NOTHING = StaticVectors(torch.zeros(SIZE, WIDTH), torch.zeros(SIZE, dtype=torch.long))


def vectors(seed: int, chain: int = 1, ids: Tensor = IDS) -> StaticVectors:
    return static_vectors(blocks_in_memory(ids[text_of(seed, chain, PIECES, 400)]), SIZE, DEFAULT_SPECIAL_IDS, WIDTH, 1)


def languages() -> tuple[Spelt, Spelt]:
    here = [f"s{_letters(number)}" for number in range(PIECES)]
    there = ["" for _ in here]
    here[DIGITS] = "7"
    for number in range(PIECES):
        there[int(IDS[FIRST + number]) - FIRST] = here[number] if number in SHARED else f"{_letters(number)}tt"
    for number, other in zip(FRIENDS, reversed(FRIENDS), strict=True):
        there[int(IDS[FIRST + number]) - FIRST] = here[other]
    there[int(IDS[FIRST + MEANING_OF_DIGITS]) - FIRST] = "7"
    return Spelt(*here), Spelt(*there, special=DEFAULT_SPECIAL_IDS)


def _letters(number: int) -> str:
    return f"{chr(97 + number // 26)}{chr(97 + number % 26)}"


HERE, THERE = languages()


@pytest.fixture(scope="module")
def source() -> Vocabulary:
    generator = torch.Generator().manual_seed(5)
    found = Vocabulary(SIZE, ROW)
    found.table_VD = torch.nn.Parameter(torch.randn(SIZE, ROW, generator=generator))
    found.bias_V = torch.nn.Parameter(torch.randn(SIZE, generator=generator))
    return found


@pytest.fixture(scope="module")
def text() -> tuple[StaticVectors, StaticVectors]:
    return vectors(1, ids=torch.arange(SIZE)), vectors(2)


@pytest.fixture(scope="module")
def found(source: Vocabulary, text: tuple[StaticVectors, StaticVectors]) -> AlignedRows:
    return align_rows(source, HERE, THERE, *text, seed=1, loss=indifferent)


def indifferent(_: InitialRows) -> float:
    """A masked loss that is the same for all rows."""
    return 7.0


def fitted(source: Vocabulary, target: Spelt = THERE) -> InitialRows:
    return initialise_rows(source, HERE, target, torch.Generator().manual_seed(1), fitted=True)


def table(translations: dict[int, dict[int, float]]) -> TranslationTable:
    """Probabilities of source ids by target id."""
    probabilities_TS = np.zeros((SIZE, SIZE), np.float32)
    for target, by_source in translations.items():
        for source, probability in by_source.items():
            probabilities_TS[target, source] = probability
    matrix = scipy.sparse.csr_array(probabilities_TS)
    return TranslationTable(matrix, pairs=100, left_out={})


def test_rows_start_near_those_that_mean_the_same(source: Vocabulary, found: AlignedRows) -> None:
    words = torch.tensor([number for number in range(PIECES) if number not in SHARED and number != MEANING_OF_DIGITS])
    rows_NV = found.rows.table_VD[IDS[FIRST + words]] @ torch.nn.functional.normalize(source.table_VD.detach()).T
    assert (rows_NV.argmax(1) == FIRST + words).float().mean() > 0.8
    assert found.quality.succeeded
    assert found.quality.start == "shared pieces"
    assert (found.quality.mapped, found.quality.translated) == (PIECES, 0)


def test_a_row_and_its_bias_are_one_mean_and_the_same_again(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors], found: AlignedRows
) -> None:
    """Shown by a table whose rows have their bias as a column."""
    with_bias = Vocabulary(SIZE, ROW)
    rows_VD = source.table_VD.detach().clone()
    rows_VD[:, 0] = source.bias_V.detach()
    with_bias.table_VD, with_bias.bias_V = torch.nn.Parameter(rows_VD), source.bias_V
    again = align_rows(with_bias, HERE, THERE, *text, seed=1, loss=indifferent)
    assert torch.allclose(again.rows.table_VD[:, 0], again.rows.bias_V, atol=1e-5)
    assert torch.equal(again.rows.bias_V, found.rows.bias_V)
    assert again.quality == found.quality


def test_shared_words_are_copied_but_not_false_friends(source: Vocabulary, found: AlignedRows) -> None:
    copied = torch.tensor([FIRST + number for number in SHARED])
    same_N = (found.rows.table_VD[IDS[copied]] == source.table_VD[copied]).all(1)
    assert same_N.float().mean() > 0.9
    assert torch.equal(found.rows.bias_V[IDS[copied]][same_N], source.bias_V[copied][same_N])
    for number, other in zip(FRIENDS, reversed(FRIENDS), strict=True):
        row = found.rows.table_VD[IDS[FIRST + number]]
        assert not torch.equal(row, source.table_VD[FIRST + other])
        assert (row - source.table_VD[FIRST + number]).norm() < (row - source.table_VD[FIRST + other]).norm()
    assert found.quality.shared == len(SHARED) + len(FRIENDS) + 1
    assert found.quality.copied_of_shared == int(same_N.sum()) + 1


@pytest.mark.parametrize(("added", "kept"), [(0.3, True), (0.5, False)])
def test_rows_that_add_much_to_the_masked_loss_of_fitted_ones_are_not_taken(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors], found: AlignedRows, added: float, kept: bool
) -> None:
    expected = fitted(source)

    def loss(rows: InitialRows) -> float:
        return 7.0 if torch.equal(rows.table_VD, expected.table_VD) else 7.0 + added

    judged = align_rows(source, HERE, THERE, *text, seed=1, loss=loss)
    assert torch.equal(judged.rows.table_VD, found.rows.table_VD if kept else expected.table_VD)
    assert judged.rows.copied == (found.rows.copied if kept else expected.copied)
    assert judged.quality.succeeded is kept
    assert judged.quality.added_loss == pytest.approx(added)
    assert (judged.quality.mapped, judged.quality.copied_of_shared) == (
        (found.quality.mapped, found.quality.copied_of_shared)
        if kept
        else (0, expected.copied - len(DEFAULT_SPECIAL_IDS))
    )
    assert f"masked loss +{added:.2f} beside fitted rows" in judged.quality.summary
    assert judged.quality.summary.startswith("succeeded" if kept else "failed")


def losses(
    source: Vocabulary, of_translated: float, of_others: float, translated: int
) -> Callable[[InitialRows], float]:
    """A masked loss that fitted rows do not add to, others by whether a row is the mean of translations."""
    expected = fitted(source)

    def loss(rows: InitialRows) -> float:
        if torch.equal(rows.table_VD, expected.table_VD):
            return 7.0
        only_translated = (rows.table_VD != expected.table_VD).any(1).sum() == translated
        return 7.0 + (of_translated if only_translated else of_others)

    return loss


@pytest.mark.parametrize(
    ("of_translated", "of_others", "translated", "mapped"),
    [
        pytest.param(0.3, 0.3, 2, PIECES - 2, id="both are kept"),
        pytest.param(0.3, 0.5, 2, 0, id="neighbours add too much to fitted rows"),
        pytest.param(-0.3, 0.2, 2, 0, id="neighbours add too much to translations"),
        pytest.param(0.5, 0.3, 0, PIECES, id="translations are refused"),
        pytest.param(0.5, 0.5, 0, 0, id="both are refused"),
    ],
)
def test_rows_from_translations_and_from_neighbours_are_each_compared_with_fitted_ones(
    source: Vocabulary,
    text: tuple[StaticVectors, StaticVectors],
    capsys: pytest.CaptureFixture[str],
    of_translated: float,
    of_others: float,
    translated: int,
    mapped: int,
) -> None:
    first, second = IDS[FIRST + 100 : FIRST + 102].tolist()
    pairs = table({first: {7: 0.25, 8: 0.75}, second: {11: 1.0}})
    judged = align_rows(
        source,
        HERE,
        THERE,
        *text,
        seed=1,
        resource=AlignmentResource.PARALLEL,
        table=pairs,
        loss=losses(source, of_translated, of_others, translated=2),
    )
    assert (judged.quality.translated, judged.quality.mapped) == (translated, mapped)
    assert judged.quality.translations_added_loss == pytest.approx(of_translated)
    assert judged.quality.added_loss == pytest.approx(of_others)
    refused = f"translations are refused: rows from them add {of_translated:.2f} nats" in capsys.readouterr().err
    assert refused is (translated == 0)
    if refused:
        assert judged.quality.resource is AlignmentResource.TEXT
        alone = align_rows(source, HERE, THERE, *text, seed=1, loss=losses(source, 0.0, of_others, translated=2))
        assert torch.equal(judged.rows.table_VD, alone.rows.table_VD)
    else:
        assert torch.equal(judged.rows.table_VD[second], source.table_VD[11])


def cognates(same: int, false_friends: int) -> tuple[Spelt, Spelt]:
    """Two languages of cognates, of which some are spelt the same, and some as the source spells another word."""
    here, there = [f"{_letters(number)}nation" for number in range(PIECES)], ["" for _ in range(PIECES)]
    for number in range(PIECES):
        spelt = f"{_letters(number)}nacion"
        if number < same:
            spelt = here[number]
        elif number < same + false_friends:
            spelt = here[same + (number - same + 1) % false_friends]
        there[int(IDS[FIRST + number]) - FIRST] = spelt
    return Spelt(*here), Spelt(*there)


def test_of_starts_that_succeed_that_with_the_most_similar_neighbours_is_kept(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors]
) -> None:
    here, there = cognates(same=10, false_friends=8)
    starts = {name: align(*text, pairs, 1) for name, pairs in seed_pairs(here, there, *text)}
    shared, best, profiles = starts.values()
    assert (shared.succeeded, best.succeeded, profiles.succeeded) == (True, True, False)
    assert shared.agreement < aligned_rows.CLEAR_AGREEMENT
    assert shared.similarity < best.similarity
    kept = align_rows(source, here, there, *text, seed=1, loss=indifferent).quality
    assert (kept.start, kept.similarity) == ("shared pieces and cognates", round(best.similarity, 4))


def test_the_last_bits_of_vectors_decide_nothing(source: Vocabulary, text: tuple[StaticVectors, StaticVectors]) -> None:
    """Other processors give other last bits of a matrix product."""
    here, there = cognates(same=10, false_friends=8)
    generator = torch.Generator().manual_seed(1)
    decided = set()
    for _ in range(8):
        noisy = [
            replace(each, vectors_VW=each.vectors_VW * (1 + 2e-7 * torch.randn(WIDTH, generator=generator)))
            for each in text
        ]
        starts = [align(*noisy, pairs, 1) for _, pairs in seed_pairs(here, there, *noisy)]
        kept = align_rows(source, here, there, *noisy, seed=1, loss=indifferent).quality
        decided.add((*(each.succeeded for each in starts), kept.start))
    assert decided == {(True, True, False, "shared pieces and cognates")}


@pytest.mark.parametrize(
    ("words", "resource", "kept"),
    [
        (60, AlignmentResource.DICTIONARY, True),
        (1, AlignmentResource.DICTIONARY, False),  # the shared pieces are what agrees
        (0, AlignmentResource.DICTIONARY, False),
        (60, AlignmentResource.PARALLEL, False),
    ],
)
def test_rows_that_a_dictionary_aligned_are_kept_at_any_masked_loss(
    source: Vocabulary,
    text: tuple[StaticVectors, StaticVectors],
    words: int,
    resource: AlignmentResource,
    kept: bool,
) -> None:
    translated = {int(IDS[FIRST + number]): {FIRST + number: 1.0} for number in range(50, 50 + words)}
    expected = fitted(source)

    def loss(rows: InitialRows) -> float:
        is_fitted = (rows.table_VD == expected.table_VD).all(1)
        return 7.0 if is_fitted.sum() >= SIZE - len(translated) else 8.5

    found = align_rows(source, HERE, THERE, *text, 1, loss, resource, table(translated)).quality
    assert (found.succeeded, found.added_loss, found.mapped > 0) == (kept, 1.5, kept)


def test_unrelated_text_leaves_rows_of_pieces_that_the_source_cannot_read_fitted(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors], capsys: pytest.CaptureFixture[str]
) -> None:
    failed, expected = (
        align_rows(source, HERE, THERE, text[0], vectors(3, chain=2), seed=1, loss=indifferent),
        fitted(source),
    )
    assert torch.equal(failed.rows.table_VD, expected.table_VD)
    assert torch.equal(failed.rows.bias_V, expected.bias_V)
    assert failed.rows == replace(expected, table_VD=failed.rows.table_VD, bias_V=failed.rows.bias_V)
    assert not failed.quality.succeeded
    assert "\n" not in failed.quality.summary
    assert failed.quality.summary.startswith("failed, from text alone")
    assert "rows from the source's pieces" in failed.quality.summary
    said = capsys.readouterr().err
    assert all(f"alignment from {start} failed" in said for start in ("shared pieces", "similarity profiles"))


def test_pieces_too_rare_for_a_vector_are_fitted(source: Vocabulary, text: tuple[StaticVectors, StaticVectors]) -> None:
    rare = IDS[FIRST + 100 : FIRST + 110]
    known_V1 = torch.ones(SIZE, 1)
    known_V1[rare] = 0
    found = align_rows(
        source,
        HERE,
        THERE,
        text[0],
        replace(text[1], vectors_VW=text[1].vectors_VW * known_V1),
        seed=1,
        loss=indifferent,
    )
    assert found.quality.succeeded
    assert torch.equal(found.rows.table_VD[rare], fitted(source).table_VD[rare])
    assert found.quality.mapped == PIECES - len(rare)


def test_rows_from_parallel_text_are_means_of_translations(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors]
) -> None:
    first, second = IDS[FIRST + 100 : FIRST + 102].tolist()
    translated = table({first: {7: 0.25, 8: 0.75}, second: {11: 1.0}})
    for there in (text[1], NOTHING):
        resource = AlignmentResource.PARALLEL
        found = align_rows(source, HERE, THERE, text[0], there, 1, indifferent, resource, translated)
        expected_ND = torch.stack([source.table_VD[7] / 4 + source.table_VD[8] * 3 / 4, source.table_VD[11]])
        assert torch.allclose(found.rows.table_VD[[first, second]], expected_ND, atol=1e-6)
        assert torch.allclose(found.rows.bias_V[first], source.bias_V[7] / 4 + source.bias_V[8] * 3 / 4, atol=1e-6)
        assert found.quality.translated == 2
        assert found.quality.mapped == (PIECES - 2 if there is text[1] else 0)
    others = [index for index in range(SIZE) if index not in (first, second)]
    assert torch.equal(found.rows.table_VD[others], fitted(source).table_VD[others])


def test_a_dictionary_starts_the_map_and_rows_are_its_neighbours(
    source: Vocabulary, text: tuple[StaticVectors, StaticVectors]
) -> None:
    nothing_shared = Spelt(*(f"{each}x" for each in THERE.texts))
    words = table({int(IDS[FIRST + number]): {FIRST + number: 1.0} for number in SHARED})
    found = align_rows(source, HERE, nothing_shared, *text, 1, indifferent, AlignmentResource.DICTIONARY, words)
    assert found.quality.succeeded
    assert (found.quality.known_pairs, found.quality.start) == (len(SHARED), "translations and shared pieces")
    assert (found.quality.mapped, found.quality.translated, found.quality.shared) == (PIECES, 0, 0)
    wrong = table({int(IDS[FIRST + number]): {FIRST + (7 * number) % PIECES: 1.0} for number in SHARED})
    misled = align_rows(source, HERE, nothing_shared, *text, 1, indifferent, AlignmentResource.DICTIONARY, wrong)
    assert misled.quality.agreement != found.quality.agreement
