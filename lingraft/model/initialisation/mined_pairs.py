"""Sentence pairs that are mined from text of two languages which nobody has translated.

A search has its documents in the source language, and what people write in the new one: both speak of the same things.
Each line is a bag of source pieces: those of the new language are replaced by their translations, at first by the
pieces that the source reads in them. Lines are compared by the cosine of the mean rows of their bags relative to that
of their nearest neighbours, and lines that are each other's best become pairs (Artetxe and Schwenk 2019, section 3.2,
"ratio"). Translations that are learned from these pairs give better bags, which give better pairs.

Mined pairs always look good to what mined them. So translations are learned twice in the end, from halves of the pairs
that have none in common: only where lines mean the same do both halves translate a word alike.

Legend: N lines of a language, S source vocabulary, T target vocabulary with borrowed pieces, D width, K neighbours.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from lingraft.console import say, with_progress
from lingraft.data.parallel_text import Pair
from lingraft.model.encoder import BorrowedRows
from lingraft.model.initialisation.mixed_rows import RowMixer, fill_empty, filled
from lingraft.model.initialisation.translation import BatchTokenizer, TranslationTable, learn_table, piece_presence

MOST_LINES = 30_000
"""Lines of each language that are compared, spread evenly over all; the time grows by their square."""
_MOST_ROUNDS, _GROWTH = 10, 1.1
"""Rounds, and the number of pairs relative to the round before from which another one is worth its time."""
_SAMPLED_LINES = 8_000
"""Lines of the new language, spread evenly, that all rounds but the last look for: they teach nearly as much."""
_DIMENSIONS = 128
_NEIGHBOURS = 4
_LEAST_MARGIN = 1.05
_LEAST_AGREEMENT = 0.1
"""Mean cosine of what two halves of the pairs say that a piece translates to, below which lines are not related."""
_FEWEST_PAIRS = 50
_LINES_AT_ONCE = 512
_TINY = 1e-6


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of lines, and the translations of pieces that they teach."""

    pairs: list[Pair]
    table: TranslationTable
    agreement: float
    """Mean cosine of what two halves of the pairs say that a piece translates to."""


class Text(NamedTuple):
    """Lines of a language, and the tokenizer that cuts them."""

    lines: Iterable[str]
    pieces: BatchTokenizer


def mine_pairs(
    source: Text,
    target: Text,
    mixer: RowMixer,
    borrowed: BorrowedRows | None = None,
    known: TranslationTable | None = None,
) -> MinedPairs | None:
    """Find lines of two languages that mean about the same; None, and a message why, where there are none.

    One core takes one to two minutes for 30,000 lines of each language.

    Args:
        source: text of the source language.
        target: text of the new language.
        mixer: the source's rows, and the new language's pieces without borrowed ones.
        borrowed: the source's rows of borrowed pieces, which stand behind those that are mixed.
        known: translations to begin with, and for pieces that pairs say nothing of; without them, lines find each other
            by borrowed pieces and those that the source can read.
    """
    here, there = _Lines.of(source), _Lines.of(target)
    own = mixer.decomposed_TS.shape[0]
    lent_TS = mixer.nothing[:0] if borrowed is None else _one_each(borrowed.ids_B, here.vocabulary)
    read_TS = scipy.sparse.vstack([mixer.decomposed_TS, lent_TS], format="csr")
    start_TS = fill_empty(known.probabilities_TS, read_TS) if known else read_TS
    rarity_S, table_SD = here.rarity(), mixer.source.table_VD.detach().cpu().float()
    here_ND = here.bags(scipy.sparse.eye_array(here.vocabulary, format="csr"), rarity_S, table_SD)
    pairs, learned = _LinePairs.none(), TranslationTable(mixer.nothing, pairs=0, left_out={})
    weights_TS = start_TS
    stride = max(1, len(there) // _SAMPLED_LINES)
    whole, sample = there, there.every(stride) if stride > 1 else there
    there = sample
    for number in range(1, _MOST_ROUNDS + 1):
        there_ND = there.bags(weights_TS, rarity_S, table_SD)
        before, pairs = len(pairs), _match_lines(here_ND, there_ND, f"mine pairs, round {number}")
        say(f"mine pairs, round {number}: {len(pairs):,} pairs of {len(here):,} and {len(there):,} lines")
        if len(pairs) < _FEWEST_PAIRS:
            break
        learned = pairs.translations(here, there)
        weights_TS = fill_empty(learned.probabilities_TS, start_TS)
        if len(pairs) < _GROWTH * before or there is not sample or number == _MOST_ROUNDS - 1:
            if there is whole:
                break
            there = whole
    new_T = ~filled(known.probabilities_TS[:own]) if known else np.ones(own, bool)
    new_T[[*mixer.shared]] = False
    agreement = _agreement(pairs, here, there, new_T)
    if agreement < _LEAST_AGREEMENT:
        say(
            f"no pairs are mined: {len(pairs):,} of {len(here):,} and {len(there):,} lines seem to mean the same, and "
            f"halves of them agree to {agreement:.2f} only on what words mean. Give text of both languages about "
            "the same things, a dictionary, or translations; or no text of the source: the language then keeps the "
            "source's tokenizer, which is a better start than pieces that nothing translates."
        )
        return None
    if known:
        learned = replace(learned, probabilities_TS=fill_empty(learned.probabilities_TS, known.probabilities_TS))
    return MinedPairs(pairs.texts(here, there), learned, agreement)


@dataclass(frozen=True)
class _Lines:
    """Lines of a language that its tokenizer knows."""

    texts: list[str]
    presence_NV: scipy.sparse.csr_array
    """Whether a line has a piece."""

    @classmethod
    def of(cls, text: Text) -> Self:
        texts = _spread_evenly(text.lines)
        presence_NV = piece_presence(text.pieces.encode_all(texts), text.pieces)
        known_N = np.flatnonzero(filled(presence_NV))
        return cls([texts[index] for index in known_N], presence_NV[known_N])

    def __len__(self) -> int:
        return len(self.texts)

    def every(self, stride: int) -> Self:
        """Every so manieth line."""
        return type(self)(self.texts[::stride], self.presence_NV[::stride])

    @property
    def vocabulary(self) -> int:
        return int(self.presence_NV.shape[1])

    def rarity(self) -> NDArray[np.float32]:
        """Logarithm (V) of how many times as many lines there are as lines with a piece; 0 where none has it."""
        lines_V = np.bincount(self.presence_NV.indices, minlength=self.vocabulary)
        found: NDArray[np.float32] = np.where(lines_V, np.log((len(self) + 1) / np.maximum(lines_V, 1)), 0).astype(
            np.float32
        )
        return found

    def bags(self, weights_VS: scipy.sparse.csr_array, rarity_S: NDArray[np.float32], table_SD: Tensor) -> Tensor:
        """Mean row (N, D) of the source pieces of each line, relative to the mean of all lines.

        Pieces weigh more that are rare in both languages, and nothing where the source's lines have none of them.
        """
        weights_NV = self.presence_NV @ scipy.sparse.diags_array(np.sqrt(self.rarity()), format="csr")
        weights_NS = weights_NV @ weights_VS @ scipy.sparse.diags_array(np.sqrt(rarity_S), format="csr")
        totals_N = torch.from_numpy(weights_NS.sum(axis=1)).float().clamp(min=_TINY)
        bags_ND = torch.from_numpy(weights_NS @ table_SD.numpy()).float() / totals_N[:, None]
        return bags_ND - bags_ND.mean(0)


@dataclass(frozen=True)
class _LinePairs:
    """Places of lines that are each other's best."""

    source_P: Tensor
    target_P: Tensor

    @classmethod
    def none(cls) -> Self:
        return cls(*(torch.empty(0, dtype=torch.long) for _ in range(2)))

    def __len__(self) -> int:
        return len(self.source_P)

    def half(self, which: int) -> "_LinePairs":
        return _LinePairs(self.source_P[which::2], self.target_P[which::2])

    def translations(self, source: _Lines, target: _Lines) -> TranslationTable:
        return learn_table(source.presence_NV[self.source_P.numpy()], target.presence_NV[self.target_P.numpy()])

    def texts(self, source: _Lines, target: _Lines) -> list[Pair]:
        places = zip(self.source_P.tolist(), self.target_P.tolist(), strict=True)
        return [Pair(source.texts[here], target.texts[there], "mined") for here, there in places]


def _one_each(ids_B: Tensor, size: int) -> scipy.sparse.csr_array:
    """Weights (B, V) of one piece each."""
    ids = ids_B.cpu().numpy()
    return scipy.sparse.csr_array((np.ones(len(ids), np.float32), (np.arange(len(ids)), ids)), shape=(len(ids), size))


def _spread_evenly(lines: Iterable[str]) -> list[str]:
    """Different lines in their order, at most `MOST_LINES`."""
    kept: dict[str, None] = {}
    stride = 1
    for number, line in enumerate(lines):
        if number % stride == 0 and (text := " ".join(line.split())):
            kept[text] = None
            if len(kept) > 2 * MOST_LINES:
                kept, stride = dict.fromkeys([*kept][::2]), 2 * stride
    texts = [*kept]
    return [texts[place * len(texts) // MOST_LINES] for place in range(MOST_LINES)] if len(kept) > MOST_LINES else texts


def _match_lines(source_ND: Tensor, target_ND: Tensor, title: str) -> _LinePairs:
    """Pair lines of which each is the other's best, and better by a margin than the neighbours of both."""
    if not len(source_ND) or not len(target_ND):
        return _LinePairs.none()
    both_ND = torch.cat([source_ND, target_ND])
    _, axes_DD = torch.linalg.eigh(both_ND.T @ both_ND)
    here_ND, there_ND = (F.normalize(each @ axes_DD[:, -_DIMENSIONS:]) for each in (source_ND, target_ND))
    here, there = _Near.of(here_ND, there_ND, title), _Near.of(there_ND, here_ND, f"{title}, backwards")
    best_N, margins_N = here.best(there)
    mutual_N = there.best(here)[0][best_N] == torch.arange(len(best_N))
    places_P = (mutual_N & (margins_N > _LEAST_MARGIN)).nonzero()[:, 0]
    return _LinePairs(places_P, best_N[places_P])


class _Near(NamedTuple):
    """The nearest lines of the other language."""

    cosines_NK: Tensor
    places_NK: Tensor

    @classmethod
    def of(cls, lines_ND: Tensor, others_ND: Tensor, title: str) -> Self:
        parts = lines_ND.split(_LINES_AT_ONCE)
        count = min(_NEIGHBOURS, len(others_ND))
        found = [(part @ others_ND.T).topk(count, dim=1) for part in with_progress(parts, title, "part", len(parts))]
        return cls(torch.cat([each.values for each in found]), torch.cat([each.indices for each in found]))

    def best(self, others: Self) -> tuple[Tensor, Tensor]:
        """The nearest line (N) by its margin: the cosine relative to the mean of both lines' neighbours."""
        around_NK = (self.cosines_NK.mean(1)[:, None] + others.cosines_NK.mean(1)[self.places_NK]) / 2
        margins_N, ranks_N = (self.cosines_NK.clamp(min=0) / around_NK.clamp(min=_TINY)).max(1)
        return self.places_NK.gather(1, ranks_N[:, None])[:, 0], margins_N


def _agreement(pairs: _LinePairs, source: _Lines, target: _Lines, new_T: NDArray[np.bool_]) -> float:
    """Mean cosine of translations that two halves of the pairs teach, of pieces of which nothing was known before."""
    if len(pairs) < _FEWEST_PAIRS:
        return 0.0
    halves = [pairs.half(which).translations(source, target).probabilities_TS[: len(new_T)] for which in range(2)]
    both_T = filled(halves[0]) & filled(halves[1]) & new_T
    first_TS, second_TS = (half[np.flatnonzero(both_T)] for half in halves)
    products_T = first_TS.multiply(second_TS).sum(axis=1)
    squares_T = first_TS.multiply(first_TS).sum(axis=1) * second_TS.multiply(second_TS).sum(axis=1)
    return float((products_T / np.sqrt(squares_T)).mean()) if len(products_T) else 0.0
