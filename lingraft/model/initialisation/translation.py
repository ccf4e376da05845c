"""Translations of target pieces into source pieces, learned from sentence pairs or from a dictionary.

From sentences by IBM model 1 (Brown et al. 1993): every target piece of a pair was produced by one of the pair's source
pieces, or by none (NULL), and expectation-maximisation finds how probably by which. Pieces that are spelled alike begin
with counts. It is trained in both directions, and what both agree on is kept. Memory is bounded whatever the number of
pairs: a piece is aligned only with the candidates that it occurs together with most tellingly, and pairs are visited in
batches. From words by counting: pieces of a pair count for each other, the more the fewer pieces the words have.

Legend: N pairs, S source vocabulary, T target vocabulary, K candidates of a piece, M pieces of a batch.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from lingraft.console import with_progress
from lingraft.data.parallel_text import Pair
from lingraft.errors import TextError
from lingraft.model.initialisation.piece_classes import Pieces
from lingraft.model.initialisation.spelling import Spelling

MOST_PAIRS = 1_000_000
"""Pairs that are learned from; of more, a part that is spread evenly."""
_MOST_CHARACTERS = 16
"""Longest word or phrase of a dictionary that is used: a longer one is no single piece, and would hardly count."""
_MOST_UNKNOWN = 0.25
"""Share of unknown pieces beyond which a sentence is not known; marks of spaces and digits are known in any script."""
UNKNOWN = "pairs with a side that the tokenizer does not know"
TOO_LONG = "pairs with a side of more than 256 different pieces"
LONG_PHRASE = f"pairs with a side of more than {_MOST_CHARACTERS} characters"
THINNED = "pairs beyond the million that is learned from"
"""Reasons why a pair is left out."""
_LONGEST = 256
_CANDIDATES = 32
_STEPS = 5
_READ_AT_ONCE = 4096
_PAIRS_AT_ONCE = 512
_CELLS = 1 << 22
"""Numbers that are computed at once, at most: bounds memory to a few hundred megabytes."""
_LEAST_PROBABLE = 0.01
"""Less probable translations are dropped: they are noise, and most of the table."""
_SPELLING_COUNT = 5
"""Pairs that equal spelling counts for. Initial rows of 15,000 German pieces find 65.2, 66.1, 66.6 and 65.4% of XQuAD's
paragraphs first with 0, 1, 5 and 20, and 44.7, 45.3, 45.1 and 44.3% of MLQA's."""
_WORD_POWER = 3
"""Best power for Greek, of 1, 2, 3, 4 and 6; words of one piece each say most."""
_TINY = 1e-30
_JUDGED = 2000
"""Pairs by which it is judged which language comes first."""
_CLEARLY = 0.9
Array = NDArray[Any]


class BatchTokenizer(Pieces, Protocol):
    """A tokenizer that cuts many texts at once."""

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text."""


@dataclass(frozen=True)
class TranslationTable:
    """Probabilities of a target piece's translations into each source piece."""

    probabilities_TS: scipy.sparse.csr_array
    """Float32; a row sums to 1, or is empty where nothing is known of the piece."""
    pairs: int
    """Pairs that were learned from."""
    left_out: dict[str, int]
    """Pairs that were not, by reason."""

    def first(self, count: int) -> "TranslationTable":
        """Return translations of the first target pieces alone."""
        return replace(self, probabilities_TS=self.probabilities_TS[:count])


def parallel_table(
    pairs: Iterable[Pair], source: BatchTokenizer, target: BatchTokenizer, origin: str
) -> TranslationTable:
    """Learn translations of pieces from sentence pairs.

    The same pairs give the same table. One core learns from 20,000 pairs of 30 pieces in some seconds.

    Args:
        pairs: sentences, read once, one by one.
        source: the primary's tokenizer.
        target: the new language's tokenizer.
        origin: where the pairs are from, for messages.
    """
    head, rest = _peek(pairs)
    given, turned = _cost(head, source, target), _cost(_swap_sides(head), source, target)
    if turned < _CLEARLY * given:
        raise TextError(
            f"{origin}: the languages are swapped. The source's tokenizer cuts the first {len(head):,} pairs into "
            f"{given:,} pieces as they are, and into {turned:,} the other way round. Give the source language first."
        )
    encoded = _EncodedPairs.of(chain(head, rest), source, target)
    encoded.require_any(origin)
    return _make_table(encoded, _symmetrise(encoded.source_NS, encoded.target_NT, Spelling.of(source, target)))


def dictionary_table(
    pairs: Iterable[Pair], source: BatchTokenizer, target: BatchTokenizer, origin: str
) -> TranslationTable:
    """Learn translations of pieces from a dictionary's words and short phrases, which may stand in either order.

    Words are taken in the spelling, as given, in lower case or capitalised, that its tokenizer cuts into fewest pieces.
    One core learns from 100,000 pairs in a second.

    Args:
        pairs: words, read once, one by one.
        source: the primary's tokenizer.
        target: the new language's tokenizer.
        origin: where the pairs are from, for messages.
    """
    head, rest = _peek(pairs)
    swapped = _cost(_swap_sides(head), source, target) < _cost(head, source, target)
    given = (target, source) if swapped else (source, target)
    sides = [_Phrases(tokenizer) for tokenizer in given]
    left_out: Counter[str] = Counter()
    for pair in chain(head, rest):
        if len(pair.source) <= _MOST_CHARACTERS and len(pair.target) <= _MOST_CHARACTERS:
            sides[0].add(pair.source)
            sides[1].add(pair.target)
        else:
            left_out[LONG_PHRASE] += 1
    source_NS, target_NT = (side.presence() for side in (reversed(sides) if swapped else sides))
    encoded = _EncodedPairs(*_leave_out_unusable(source_NS, target_NT, left_out), left_out)
    encoded.require_any(origin)
    return _make_table(encoded, _cooccurrence(encoded.source_NS, encoded.target_NT))


class _Phrases:
    """One side of a dictionary: every word is encoded once, however many phrases have it."""

    def __init__(self, tokenizer: BatchTokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers: dict[str, int] = {}
        self._words, self._ends = array("i"), array("i", [0])

    def add(self, phrase: str) -> None:
        """Add a phrase of a few words."""
        for word in phrase.split():
            self._words.append(self._numbers.setdefault(word, len(self._numbers)))
        self._ends.append(len(self._words))

    def presence(self) -> scipy.sparse.csr_array:
        """Return which phrase has which pieces, as 0 and 1 (N, V)."""
        words = [*self._numbers]
        parts = [
            piece_presence(encode_best_spelling(words[start : start + _READ_AT_ONCE], self._tokenizer), self._tokenizer)
            for start in range(0, max(len(words), 1), _READ_AT_ONCE)
        ]
        ones, numbers, ends = (
            np.asarray(each, np.int32) for each in (np.ones(len(self._words)), self._words, self._ends)
        )
        words_NW = scipy.sparse.csr_array((ones, numbers, ends), shape=(len(ends) - 1, len(words)))
        pieces_NV = (words_NW @ scipy.sparse.vstack(parts, format="csr")).tocsr()
        pieces_NV.data[:] = 1
        return pieces_NV


def encode_best_spelling(words: list[str], tokenizer: BatchTokenizer) -> list[list[int]]:
    """Ids of words as given, in lower case or capitalised: in what each is cut into the fewest known pieces.

    A word with an unknown piece has none.
    """
    best, unknown = tokenizer.encode_all(words), tokenizer.special.unknown
    for spelling in ([word.lower() for word in words], [word[:1].upper() + word[1:] for word in words]):
        others = [index for index, word in enumerate(words) if spelling[index] != word]
        for index, ids in zip(others, tokenizer.encode_all([spelling[index] for index in others]), strict=True):
            if (unknown in ids, len(ids)) < (unknown in best[index], len(best[index])):
                best[index] = ids
    return [[] if unknown in ids else ids for ids in best]


def _peek(pairs: Iterable[Pair]) -> tuple[list[Pair], Iterator[Pair]]:
    rest = iter(pairs)
    return list(islice(rest, _JUDGED)), rest


def _swap_sides(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return (Pair(pair.target, pair.source, pair.place) for pair in pairs)


def _cost(pairs: Iterable[Pair], source: BatchTokenizer, target: BatchTokenizer) -> int:
    """Pieces that both tokenizers cut pairs into; where one meets what it does not know, a character is a piece."""
    given = list(pairs)
    sides = (([pair.source for pair in given], source), ([pair.target for pair in given], target))
    return sum(
        len(text) if cutter.special.unknown in ids else len(ids)
        for texts, cutter in sides
        for text, ids in zip(texts, cutter.encode_all(texts), strict=True)
    )


@dataclass(frozen=True)
class _EncodedPairs:
    """Pairs as sparse matrices of 0 and 1: whether a pair has a piece."""

    source_NS: scipy.sparse.csr_array
    target_NT: scipy.sparse.csr_array
    left_out: Counter[str]

    @classmethod
    def of(cls, pairs: Iterable[Pair], source: BatchTokenizer, target: BatchTokenizer) -> Self:
        batches: list[tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]] = []
        left_out: Counter[str] = Counter()
        stride = 1
        for number, batch in enumerate(_batches(pairs)):
            if number % stride:
                left_out[THINNED] += len(batch)
                continue
            batches.append(_encode(batch, source, target, left_out))
            if sum(part.shape[0] for part, _ in batches) > MOST_PAIRS:
                left_out[THINNED] += sum(part.shape[0] for part, _ in batches[1::2])
                batches, stride = batches[::2], 2 * stride
        if not batches:
            batches.append(_encode([], source, target, left_out))
        source_NS, target_NT = (scipy.sparse.vstack(parts, format="csr") for parts in zip(*batches, strict=True))
        return cls(source_NS, target_NT, left_out)

    def require_any(self, origin: str) -> None:
        """Refuse to learn from nothing; the error says why there is nothing, with counts."""
        if not self.source_NS.shape[0]:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items()) or "there are none"
            raise TextError(
                f"{origin}: no pair is left to learn translations from ({reasons}). Check that the file is in the "
                "languages of the source and the target."
            )


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    rest = iter(pairs)
    while batch := list(islice(rest, _READ_AT_ONCE)):
        yield batch


def _encode(
    pairs: list[Pair], source: BatchTokenizer, target: BatchTokenizer, left_out: Counter[str]
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    source_NS = piece_presence(source.encode_all([pair.source for pair in pairs]), source)
    target_NT = piece_presence(target.encode_all([pair.target for pair in pairs]), target)
    return _leave_out_unusable(source_NS, target_NT, left_out)


def _leave_out_unusable(
    source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array, left_out: Counter[str]
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    lengths = np.stack([np.diff(source_NS.indptr), np.diff(target_NT.indptr)])
    unknown, too_long = (lengths == 0).any(0), (lengths > _LONGEST).any(0)
    for reason, found in ((UNKNOWN, unknown), (TOO_LONG, too_long)):
        if count := int(found.sum()):
            left_out[reason] += count
    kept = np.flatnonzero(~(unknown | too_long))
    return source_NS[kept], target_NT[kept]


def learn_table(source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array) -> TranslationTable:
    """Learn translations of pieces from pairs whose pieces are marked by `piece_presence`."""
    return _make_table(_EncodedPairs(source_NS, target_NT, Counter()), _symmetrise(source_NS, target_NT))


def piece_presence(encoded: list[list[int]], cutter: BatchTokenizer) -> scipy.sparse.csr_array:
    """Mark the pieces of each text by 1 (N, V): none that are special, and none of a text that is not known."""
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ids = np.fromiter(chain.from_iterable(encoded), np.int64, int(lengths.sum()))
    rows, size = np.repeat(np.arange(len(encoded)), lengths), len(cutter)
    unknown_N = np.bincount(rows, ids == cutter.special.unknown, minlength=len(encoded))
    ordinary = ~np.isin(ids, list(cutter.special)) & (unknown_N <= _MOST_UNKNOWN * lengths)[rows]
    rows, ids = np.divmod(np.unique(rows[ordinary] * size + ids[ordinary]), size)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(encoded)))])
    ones = np.ones(len(ids), np.float32)
    return scipy.sparse.csr_array((ones, ids.astype(np.int32), ends.astype(np.int32)), shape=(len(encoded), size))


def _make_table(encoded: _EncodedPairs, counts_TS: scipy.sparse.csr_array) -> TranslationTable:
    return TranslationTable(_by_row(counts_TS), encoded.target_NT.shape[0], dict(encoded.left_out))


def _symmetrise(
    source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array, spelling: Spelling | None = None
) -> scipy.sparse.csr_array:
    """The geometric mean of both directions' probabilities (T, S): 0 where one of them never aligns two pieces."""
    forward_TS = _ibm_model_1(source_NS, target_NT, spelling)
    backward_ST = _ibm_model_1(target_NT, source_NS, spelling.turned if spelling else None)
    return _columns_of_1(forward_TS).multiply(_columns_of_1(backward_ST).T).sqrt().tocsr()


def _columns_of_1(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    totals = np.maximum(counts.sum(axis=0), _TINY)
    return scipy.sparse.csr_array((counts.data / totals[counts.indices], counts.indices, counts.indptr), counts.shape)


def _cooccurrence(source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Count two pieces (T, S) in words of a pair; words of m and n pieces count for (m n)^-3 each."""
    weighted = [
        scipy.sparse.diags_array(np.diff(side.indptr).astype(np.float64) ** -_WORD_POWER) @ side
        for side in (source_NS, target_NT)
    ]
    return (weighted[1].T.tocsr() @ weighted[0]).tocsr()


def _by_row(counts_TS: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Rows that sum to 1, without what is improbable."""
    for least in (_LEAST_PROBABLE, 0.0):
        totals_T = counts_TS.sum(axis=1)
        rows_C = np.repeat(np.arange(counts_TS.shape[0]), np.diff(counts_TS.indptr))
        shares_C = counts_TS.data / totals_T[rows_C]
        kept = shares_C > least
        coordinates = rows_C[kept], counts_TS.indices[kept]
        counts_TS = scipy.sparse.coo_array((shares_C[kept], coordinates), shape=counts_TS.shape).tocsr()
    return counts_TS.astype(np.float32)


def _ibm_model_1(
    source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array, spelling: Spelling | None
) -> scipy.sparse.csr_array:
    """Expect how often a target piece comes from each source piece (T, S), by model 1 in one direction."""
    candidates_TK = _candidates(source_NS, target_NT)
    # Behind the last source piece stands one that no pair has, where a piece has fewer candidates.
    real_TK = candidates_TK < source_NS.shape[1]
    alike_TK = _SPELLING_COUNT * spelling.likeness(candidates_TK) if spelling else np.zeros(real_TK.shape, np.float32)
    probabilities_TK = real_TK + alike_TK
    frequencies_T = np.bincount(target_NT.indices, minlength=target_NT.shape[1])
    null_T = (frequencies_T / frequencies_T.sum()).astype(np.float32)
    for _ in with_progress(range(_STEPS), "learn translations", "pass", _STEPS):
        counts_TK, null_counts_T = _expected(source_NS, target_NT, candidates_TK, probabilities_TK, null_T)
        counts_TK += np.where(counts_TK > 0, alike_TK, 0)
        totals_S = np.bincount(candidates_TK.ravel(), counts_TK.ravel(), minlength=source_NS.shape[1] + 1)
        probabilities_TK = (counts_TK / np.maximum(totals_S, _TINY)[candidates_TK]).astype(np.float32)
        null_T = (null_counts_T / max(null_counts_T.sum(), _TINY)).astype(np.float32)
    rows_C, columns_C = np.nonzero(real_TK & (counts_TK > 0))
    found = counts_TK[rows_C, columns_C], (rows_C, candidates_TK[rows_C, columns_C])
    return scipy.sparse.coo_array(found, shape=(target_NT.shape[1], source_NS.shape[1])).tocsr()


def _expected(
    source_NS: scipy.sparse.csr_array,
    target_NT: scipy.sparse.csr_array,
    candidates_TK: Array,
    probabilities_TK: Array,
    null_T: Array,
) -> tuple[Array, Array]:
    """One step's expectation: how often each target piece comes from each candidate, and from none."""
    counts_TK, null_counts_T = np.zeros(candidates_TK.shape), np.zeros(len(null_T))
    pairs, size = source_NS.shape
    at_once = max(1, min(4 * _CELLS // (size + 1), _PAIRS_AT_ONCE))
    present_NS = np.zeros((at_once, size + 1), dtype=bool)
    for start in range(0, pairs, at_once):
        source_rows, source_ids = _entries(source_NS, start, at_once)
        target_rows, target_ids = _entries(target_NT, start, at_once)
        present_NS[source_rows, source_ids] = True
        weights_MK = probabilities_TK[target_ids] * present_NS[target_rows[:, None], candidates_TK[target_ids]]
        present_NS[source_rows, source_ids] = False
        null_M = null_T[target_ids]
        total_M = np.maximum(weights_MK.sum(axis=1) + null_M, _TINY)
        weights_MK /= total_M[:, None]
        order_M = np.argsort(target_ids, kind="stable")
        ids, begins = np.unique(target_ids[order_M], return_index=True)
        counts_TK[ids] += np.add.reduceat(weights_MK[order_M], begins, axis=0)
        null_counts_T += np.bincount(target_ids, null_M / total_M, minlength=len(null_T))
    return counts_TK, null_counts_T


def _entries(matrix: scipy.sparse.csr_array, start: int, rows: int) -> tuple[Array, Array]:
    ends = matrix.indptr[start : start + rows + 1]
    return np.repeat(np.arange(len(ends) - 1), np.diff(ends)), matrix.indices[ends[0] : ends[-1]]


def _candidates(source_NS: scipy.sparse.csr_array, target_NT: scipy.sparse.csr_array) -> Array:
    """The source pieces (T, K) that each target piece occurs together with most tellingly, by their local PMI."""
    pairs, size = source_NS.shape
    lengths_N, in_source_S = np.diff(source_NS.indptr), np.bincount(source_NS.indices, minlength=size)
    target_TN = target_NT.T.tocsr()
    in_target_T, cells_T = np.diff(target_TN.indptr), target_TN @ lengths_N
    found_TK = np.full((len(in_target_T), _CANDIDATES), size, np.int32)
    begins = np.flatnonzero(np.diff(np.cumsum(cells_T) // _CELLS, prepend=-1))
    for start, stop in zip(begins, [*begins[1:], len(in_target_T)], strict=True):
        together = target_TN[start:stop] @ source_NS
        rows_C = np.repeat(np.arange(start, stop), np.diff(together.indptr))
        expected_C = in_target_T[rows_C] * (in_source_S[together.indices] / pairs)
        scores_C = together.data * np.log(together.data / expected_C)
        order_C = np.lexsort((-scores_C, rows_C))
        ranks_C = np.arange(len(order_C)) - np.repeat(together.indptr[:-1], np.diff(together.indptr))
        best = order_C[ranks_C < _CANDIDATES]
        found_TK[rows_C[best], ranks_C[ranks_C < _CANDIDATES]] = together.indices[best]
    return found_TK
