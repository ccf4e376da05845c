"""Pairs of lines that mean the same, mined from text of two languages, and none from text that has none."""

import numpy as np
import pytest
import scipy.sparse
import torch

from lingraft.model.encoder import BorrowedRows, Vocabulary
from lingraft.model.initialisation import mined_pairs
from lingraft.model.initialisation.mined_pairs import MinedPairs, Text, mine_pairs
from lingraft.model.initialisation.mixed_rows import RowMixer
from lingraft.model.initialisation.translation import TranslationTable
from tests.languages_made_up import FIRST, Spelt

WORDS, NAMES, LINES, WIDTH = 1500, 300, 2000, 48
"""Words, of which the first are names that both languages write alike."""


def speech(seed: int, words: list[str], lines: int = LINES) -> list[str]:
    """Lines of twelve words, rare ones rarely."""
    draw = np.random.default_rng(seed)
    chances = 1 / np.arange(3.0, 3 + WORDS)
    order = np.random.default_rng(0).permutation(WORDS)
    drawn = draw.choice(WORDS, size=(lines, 12), p=chances / chances.sum())
    return [" ".join(words[order[number]] for number in line) for line in drawn]


HERE = [f"s{number}" for number in range(WORDS)]
THERE = [HERE[number] if number < NAMES else f"t{number}" for number in range(WORDS)]
SOURCE, TARGET = Spelt(*HERE), Spelt(*THERE)


@pytest.fixture(scope="module")
def source() -> Vocabulary:
    found = Vocabulary(len(SOURCE), WIDTH)
    generator = torch.Generator().manual_seed(5)
    found.table_VD = torch.nn.Parameter(torch.randn(len(SOURCE), WIDTH, generator=generator))
    return found


def mined(
    source: Vocabulary, here: list[str], there: list[str], target: Spelt = TARGET, known: TranslationTable | None = None
) -> MinedPairs | None:
    mixer = RowMixer.of(source, SOURCE, target, seed=1, rescales=True)
    return mine_pairs(Text(here, SOURCE), Text(there, target), mixer, known=known)


def shuffled(lines: list[str]) -> list[str]:
    return [lines[place] for place in np.random.default_rng(3).permutation(len(lines))]


def translated(found: MinedPairs) -> float:
    """Share of pairs that are each other's translations, word by word."""
    by_word = dict(zip(THERE, HERE, strict=True))
    return float(
        np.mean([" ".join(by_word[word] for word in pair.target.split()) == pair.source for pair in found.pairs])
    )


def test_lines_and_their_translations_find_each_other_by_the_names_in_them(source: Vocabulary) -> None:
    found = mined(source, speech(1, HERE), shuffled(speech(1, THERE)))
    assert found
    assert len(found.pairs) > 0.9 * LINES
    assert translated(found) > 0.95
    likeliest_T = np.asarray(found.table.probabilities_TS.argmax(axis=1)).ravel()
    words_T = np.arange(FIRST + NAMES, FIRST + WORDS)
    assert (likeliest_T[words_T] == words_T).mean() > 0.9
    assert found.agreement > 0.8


def test_a_translated_part_of_other_text_is_found(source: Vocabulary) -> None:
    parts = [speech(1, words) + speech(seed, words, LINES // 4) for seed, words in ((2, HERE), (3, THERE))]
    found = mined(source, *parts)
    assert found
    assert translated(found) > 0.8


def test_without_any_word_in_common_a_dictionary_is_a_start(source: Vocabulary) -> None:
    strange = Spelt(*(f"u{number}" for number in range(WORDS)))
    here, there = speech(1, HERE), shuffled(speech(1, list(strange.texts)))
    places = np.arange(FIRST, FIRST + WORDS, 4)
    some = scipy.sparse.csr_array(
        (np.ones(len(places), np.float32), (places, places)), shape=(len(strange), len(SOURCE))
    )
    found = mined(source, here, there, strange, TranslationTable(some, pairs=len(places), left_out={}))
    assert found
    numbers = [[int(word[1:]) for word in side.split()] for pair in found.pairs for side in (pair.source, pair.target)]
    assert np.mean([here == there for here, there in zip(numbers[::2], numbers[1::2], strict=True)]) > 0.95


@pytest.mark.parametrize("there", [speech(9, THERE), [], ["nothing that is known"], speech(1, THERE)[:20]])
def test_text_that_says_other_things_or_too_little_gives_no_pairs(
    source: Vocabulary, there: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert mined(source, speech(1, HERE), there) is None
    assert "no pairs are mined: " in capsys.readouterr().err


def test_of_many_lines_as_many_as_can_be_compared_are_spread_over_all(
    source: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mined_pairs, "MOST_LINES", 700)
    lines = speech(1, HERE)
    found = mined(source, lines * 2, speech(1, THERE) * 2)
    assert found
    assert len(found.pairs) <= 700
    assert translated(found) > 0.95
    places = {line: place for place, line in enumerate(lines)}
    quarters = np.bincount([4 * places[pair.source] // LINES for pair in found.pairs])
    assert quarters.min() > 0.7 * quarters.max()


def test_borrowed_pieces_have_the_sources_rows(source: Vocabulary) -> None:
    """Names are borrowed, and are no rows of the language's own."""
    own = Spelt(*THERE[NAMES:])
    both = Spelt(*THERE[NAMES:], *THERE[:NAMES])
    mixer = RowMixer.of(source, SOURCE, own, seed=1, rescales=True)
    borrowed = BorrowedRows(torch.arange(FIRST, FIRST + NAMES), source)
    texts = Text(speech(1, HERE), SOURCE), Text(shuffled(speech(1, THERE)), both)
    found = mine_pairs(*texts, mixer, borrowed=borrowed)
    assert found
    assert translated(found) > 0.95
    assert found.table.probabilities_TS.shape == (len(both), len(SOURCE))
