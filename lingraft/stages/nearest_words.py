"""Words of a language beside the source's nearest ones, as embeddings were initialised and as they were learned.

Legend: V vocabulary, D width, N blocks, T tokens of a block, C candidates, K words.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.initial_rows import shared_pieces
from lingraft.model.initialisation.piece_classes import PieceClass, Pieces, classes_of, is_letter
from lingraft.stages.results import NearestWords, Neighbour

_WORDS, _NAMES, _NUMBERS = 12, 2, 2
_NEIGHBOURS = 3
_FEWEST_LETTERS = 4
"""Letters that a word needs; shorter ones are mostly function words and abbreviations."""
_FEWEST_CHARACTERS = 2
"""Characters that a word needs in a script without spaces, whose pieces do not tell where words begin."""
_INITIAL_SHARE = 0.25
"""Ratio of pieces that begin a word to those inside one, from which a language is written with spaces."""
_WHOLE_SHARE = 0.5
"""Share of a piece's occurrences that no piece continues; with less, it is mostly the beginning of words."""


def nearest_words(
    source: Vocabulary,
    source_pieces: Pieces,
    target_pieces: Pieces,
    blocks_NT: Tensor,
    before: Vocabulary,
    after: Vocabulary,
) -> tuple[NearestWords, ...]:
    """Find the nearest source pieces of a language's most frequent words, and of a few shared names and numbers.

    Rows are compared by cosine, each vocabulary centred. Words that the source has too are left out: their rows may be
    copies. Names are shared words that are capitalised.

    Returns:
        Words, then names and numbers; the most frequent first. Fewer where the blocks have fewer.
    """
    words, names_and_numbers = _chosen(source_pieces, target_pieces, blocks_NT)
    ids_K = [*words, *names_and_numbers]
    nearest = _search(source, source_pieces)
    texts = _texts(target_pieces, ids_K)
    found = zip(ids_K, nearest(before, ids_K), nearest(after, ids_K), strict=True)
    return tuple(
        NearestWords(word=texts[index], shared=index in names_and_numbers, before=first, after=then)
        for index, first, then in found
    )


def _chosen(source_pieces: Pieces, target_pieces: Pieces, blocks_NT: Tensor) -> tuple[list[int], list[int]]:
    classes, shared = classes_of(target_pieces), shared_pieces(source_pieces, target_pieces)
    spaced = _spaced(classes)
    counts_V, whole_V = _counts(blocks_NT.long(), classes, spaced)
    fewest, word_classes = (_FEWEST_LETTERS if spaced else _FEWEST_CHARACTERS), _word_classes(spaced)
    order = counts_V.argsort(descending=True, stable=True)
    texts = _texts(target_pieces, order[counts_V[order] > 0].tolist())
    words = {
        index: text
        for index, text in texts.items()
        if classes[index] in word_classes
        and len(text) >= fewest
        and all(map(is_letter, text))
        and whole_V[index] >= _WHOLE_SHARE * counts_V[index]
    }
    own = {index: text for index, text in words.items() if index not in shared}
    names = {index: text for index, text in words.items() if index in shared and text[0].isupper()}
    numbers = {index: text for index, text in texts.items() if index in shared and classes[index] is PieceClass.DIGITS}
    return _first(own, _WORDS), [*_first(names, _NAMES), *_first(numbers, _NUMBERS)]


def _texts(pieces: Pieces, ids: Iterable[int]) -> dict[int, str]:
    """Return the texts of the ids that are not special, in their order."""
    surfaces, special = pieces.surfaces(), set(pieces.special)
    return {index: each.text for index in ids if index not in special and (each := surfaces[index])}


def _first(texts: Mapping[int, str], most: int) -> list[int]:
    """The first ids, one of those that differ in case alone."""
    by_text = {text.casefold(): index for index, text in reversed([*texts.items()])}
    return [index for index, text in texts.items() if by_text[text.casefold()] == index][:most]


def _spaced(classes: Sequence[PieceClass]) -> bool:
    """Whether pieces tell where words begin: hardly any does in a script that is written without spaces."""
    counts = Counter(classes)
    return counts[PieceClass.INITIAL] >= _INITIAL_SHARE * counts[PieceClass.CONTINUATION]


def _word_classes(spaced: bool) -> set[PieceClass]:
    return {PieceClass.INITIAL} if spaced else {PieceClass.INITIAL, PieceClass.CONTINUATION}


def _counts(blocks_NT: Tensor, classes: Sequence[PieceClass], spaced: bool) -> tuple[Tensor, Tensor]:
    """Count each piece (V), and each piece that no other continues (V)."""
    continues_V = torch.tensor([spaced and each is PieceClass.CONTINUATION for each in classes])
    alone_NT = ~continues_V[blocks_NT].roll(-1, dims=1)
    alone_NT[:, -1] = True
    size = len(classes)
    return blocks_NT.flatten().bincount(minlength=size), blocks_NT[alone_NT].bincount(minlength=size)


def _search(source: Vocabulary, pieces: Pieces) -> Callable[[Vocabulary, Sequence[int]], list[tuple[Neighbour, ...]]]:
    """A search among the source's words and numbers, for neighbours of rows of any vocabulary of its width."""
    classes, texts = classes_of(pieces), _texts(pieces, range(len(pieces)))
    wanted = _word_classes(_spaced(classes)) | {PieceClass.DIGITS}
    candidates_C = torch.tensor([index for index in texts if classes[index] in wanted], dtype=torch.long)
    rows_CD = _centred(source)[candidates_C]

    def nearest(vocabulary: Vocabulary, ids_K: Sequence[int]) -> list[tuple[Neighbour, ...]]:
        cosines_KC = _centred(vocabulary)[torch.tensor(ids_K, dtype=torch.long)] @ rows_CD.T
        best_K3, places_K3 = cosines_KC.topk(min(_NEIGHBOURS, len(candidates_C)), dim=1)
        return [
            tuple(
                Neighbour(piece=texts[index], cosine=round(cosine, 4))
                for index, cosine in zip(candidates_C[places_3].tolist(), best_3.tolist(), strict=True)
            )
            for best_3, places_3 in zip(best_K3, places_K3, strict=True)
        ]

    return nearest


def _centred(vocabulary: Vocabulary) -> Tensor:
    """Rows (V, D) of unit length around their mean, on the CPU."""
    table_VD = vocabulary.whole()[0].detach().cpu().float()
    return F.normalize(table_VD - table_VD.mean(0), dim=1)
