"""Piece translations are found in a made-up language: the source's own sentences with every piece renamed."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from lingraft.data.parallel_text import Pair
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds, Surface
from lingraft.errors import TextError
from lingraft.model.initialisation import translation
from lingraft.model.initialisation.spelling import Spelling
from lingraft.model.initialisation.translation import (
    LONG_PHRASE,
    TOO_LONG,
    UNKNOWN,
    dictionary_table,
    parallel_table,
)

WORDS = 120


@dataclass(frozen=True)
class Words:
    """A tokenizer of words: those that it does not know are its unknown piece; "a+b" are two pieces."""

    known: tuple[str, ...]
    special: SpecialIds = DEFAULT_SPECIAL_IDS
    encoded: Counter[str] = field(default_factory=Counter, compare=False)

    def __len__(self) -> int:
        return len(DEFAULT_SPECIAL_IDS) + len(self.known)

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        self.encoded.update(texts)
        ids = {word: index for index, word in enumerate(self.known, start=len(DEFAULT_SPECIAL_IDS))}
        return [
            [ids.get(word, DEFAULT_SPECIAL_IDS.unknown) for word in text.replace("+", " ").split()] for text in texts
        ]

    def surfaces(self) -> list[Surface | None]:
        return [*[None] * len(DEFAULT_SPECIAL_IDS), *(Surface(word, initial=True) for word in self.known)]

    def id_of(self, word: str) -> int:
        return self.encode_all([word])[0][0]


SOURCE = Words(tuple(f"s{number}" for number in range(WORDS)))
TARGET = Words(tuple(f"t{number}" for number in random.Random(5).sample(range(WORDS), WORDS)))
"""The translation of s7 is t7, at another id."""


def sentences(count: int, seed: int = 1, function_word: bool = True) -> Iterator[Pair]:
    """Frequent words and rare ones in another order each time, with a target word in half of all that nothing means."""
    draw = random.Random(seed)
    for number in range(count):
        words = [int(WORDS * draw.random() ** 2) for _ in range(8)]
        target = [f"t{word}" for word in draw.sample(words, len(words))]
        if function_word and draw.random() < 0.5:
            target.append("t0")
        yield Pair(" ".join(f"s{word}" for word in words), " ".join(target), f"line {number + 1}")


def best(table: translation.TranslationTable, word: str) -> tuple[int, float]:
    row_S = table.probabilities_TS[[TARGET.id_of(word)]].toarray()[0]
    return int(row_S.argmax()), float(row_S.max())


def covered(table: translation.TranslationTable) -> int:
    return int(np.count_nonzero(np.diff(table.probabilities_TS.indptr)))


def test_a_permuted_vocabulary_is_found_from_sentences() -> None:
    table = parallel_table(sentences(1500), SOURCE, TARGET, "made up")
    found = [best(table, f"t{number}")[0] == SOURCE.id_of(f"s{number}") for number in range(WORDS)]
    assert sum(found) >= WORDS - 2
    assert np.mean([best(table, f"t{number}")[1] for number in range(WORDS)]) > 0.9
    assert (table.pairs, table.left_out, covered(table)) == (1500, {}, WORDS)


def test_rows_are_probabilities_and_special_pieces_have_none() -> None:
    pairs = [Pair(f"{pair.source} unheard", f"{pair.target} of", pair.place) for pair in sentences(300)]
    table = parallel_table(pairs, SOURCE, TARGET, "made up")
    probabilities_TS = table.probabilities_TS.toarray()
    assert probabilities_TS.dtype == np.float32
    assert probabilities_TS.shape == (len(TARGET), len(SOURCE))
    totals_T = probabilities_TS.sum(1)
    assert np.allclose(totals_T[totals_T > 0], 1, atol=1e-5)
    assert not probabilities_TS[list(DEFAULT_SPECIAL_IDS)].any()
    assert not probabilities_TS[:, list(DEFAULT_SPECIAL_IDS)].any()
    assert table.probabilities_TS.data.min() > 0


def test_pairs_that_cannot_be_aligned_are_left_out_and_counted() -> None:
    long = " ".join(f"s{number}" for number in range(300))
    wide = Words(tuple(f"s{number}" for number in range(300)))
    pairs = [*sentences(20), Pair("unheard of", "t1", ""), Pair(long, "t1", "")]
    assert parallel_table(pairs, wide, TARGET, "made up").left_out == {UNKNOWN: 1, TOO_LONG: 1}


def test_text_that_nothing_can_be_learned_from_is_refused_with_counts() -> None:
    with pytest.raises(TextError, match=r"nothing: no pair is left .*\(there are none\)"):
        parallel_table([], SOURCE, TARGET, "nothing")
    unheard = [Pair("unheard", "of", "")] * 3
    for learn in (parallel_table, dictionary_table):
        with pytest.raises(TextError, match=rf"other: no pair is left .*\(3 {UNKNOWN}\)"):
            learn(unheard, SOURCE, TARGET, "other")


@pytest.mark.parametrize("learn", [parallel_table, dictionary_table])
def test_pieces_that_any_script_has_do_not_make_a_text_known(
    learn: Callable[..., translation.TranslationTable],
) -> None:
    digits = Words(("_", "1", "2"))
    strange = [Pair("s1", f"_+{word}+{number}", "") for word in ("น้ำ", "水") for number in (1, 2)]
    strange += [Pair("s1", f"_+水+{number}+1+2", "") for number in (1, 2) if learn is dictionary_table]
    with pytest.raises(TextError, match=rf"words: no pair is left .*\({len(strange)} {UNKNOWN}\)"):
        learn(strange, SOURCE, digits, "words")


def test_swapped_languages_of_sentences_are_refused() -> None:
    swapped = [Pair(pair.target, pair.source, pair.place) for pair in sentences(50)]
    with pytest.raises(TextError, match=r"made up: the languages are swapped.*first 50 pairs"):
        parallel_table(swapped, SOURCE, TARGET, "made up")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_dictionary_is_read_in_either_order(swapped: bool) -> None:
    pairs = [Pair(f"s{number}", f"t{number}", "") for number in range(0, WORDS, 2)]
    given = [Pair(pair.target, pair.source, "") for pair in pairs] if swapped else pairs
    table = dictionary_table(given, SOURCE, TARGET, "words")
    assert covered(table) == WORDS // 2
    assert all(best(table, f"t{number}") == (SOURCE.id_of(f"s{number}"), 1.0) for number in range(0, WORDS, 2))


def test_words_of_one_piece_count_more_than_words_that_only_contain_it() -> None:
    pairs = [Pair("s1", "t1", ""), *[Pair("s2+s3", f"t1+t{number}", "") for number in range(4, 14)]]
    table = dictionary_table(pairs, SOURCE, TARGET, "words")
    assert best(table, "t1")[0] == SOURCE.id_of("s1")
    assert best(table, "t5")[0] in (SOURCE.id_of("s2"), SOURCE.id_of("s3"))


def test_words_are_looked_up_in_the_spelling_that_the_tokenizer_knows() -> None:
    source, target = Words(("sol", "Lun")), Words(("Zun", "mun"))
    table = dictionary_table([Pair("Sol", "zun", ""), Pair("lun", "MUN", "")], source, target, "words")
    assert table.probabilities_TS[[target.id_of("Zun")], [source.id_of("sol")]].sum() == 1
    assert table.probabilities_TS[[target.id_of("mun")], [source.id_of("Lun")]].sum() == 1


def test_a_dictionarys_words_are_encoded_once_each_and_long_phrases_are_left_out() -> None:
    source, target = Words(("sol", "ti")), Words(("zun", "mun"))
    pairs = [Pair("sol", f"mun {number}", "") for number in range(3000)]
    pairs += [Pair("sol ti", "zun", ""), Pair("sol ti sol ti sol", "zun", ""), Pair("ti", "mun" * 6, "")]
    table = dictionary_table(pairs, source, target, "words")
    assert (table.pairs, table.left_out) == (3001, {LONG_PHRASE: 2})
    # The first 2,000 pairs are looked at once more, to find which language comes first.
    assert source.encoded == {"sol": 2001, "ti": 1, "Sol": 1, "Ti": 1, **{f"mun {number}": 1 for number in range(2000)}}
    assert table.probabilities_TS[[target.id_of("zun")], [source.id_of("sol")]].sum() == pytest.approx(0.5)


def test_words_that_are_spelled_alike_are_translations_where_sentences_leave_it_open() -> None:
    source = Words(("harbour", "quay", "storm", "theatre", "islam", "the"))
    target = Words(("theater", "hafen", "kai", "sturm", "islam", "der"))
    pairs = [
        Pair("the harbour theatre", "der theater hafen", "line 1"),
        Pair("the quay islam storm", "der sturm kai islam", "line 2"),
        Pair("the harbour quay", "der hafen kai", "line 3"),
    ]
    found_TS = parallel_table(pairs, source, target, "made up").probabilities_TS.toarray()
    likeliest = {word: source.known[int(found_TS[target.id_of(word)].argmax()) - 5] for word in target.known}
    assert likeliest == dict(zip(target.known, ("theatre", "harbour", "quay", "storm", "islam", "the"), strict=True))


def test_likeness_is_that_of_letters_without_accents_or_case() -> None:
    spelling = Spelling.of(Words(("protest", "the", "ж")), Words(("Prótestant", "da", "sonne")))
    candidates_TK = np.tile([5, 6, 7, 99], (8, 1))  # the last one is none
    likeness_TK = spelling.likeness(candidates_TK)
    # " p", "pr", "ro", "ot", "te", "es" and "st" of 7 and 10 bigrams.
    assert likeness_TK[5].tolist() == pytest.approx([(14 / 17) ** 2, 0, 0, 0])
    assert not likeness_TK[[0, 6, 7]].any()
    assert spelling.turned.likeness(np.full((8, 1), 5))[5, 0] == pytest.approx((14 / 17) ** 2)
