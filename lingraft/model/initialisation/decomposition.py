"""Rows of the source's pieces into which its tokenizer cuts the text of a language's pieces.

With such rows a text means about what it means to the source as it is: nothing where the source does not know the
script, but names, numbers, borrowed words and parts of them keep their meaning.

Legend: S source vocabulary, T target vocabulary.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import scipy.sparse

from lingraft.model.initialisation.piece_classes import Pieces


class CuttingPieces(Pieces, Protocol):
    """Part of the source's tokenizer that decomposition needs."""

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text."""


def decompose(source: CuttingPieces, target: Pieces) -> scipy.sparse.csr_array:
    """Weigh the source pieces that make up each target piece (T, S) by their characters: long ones say more.

    A row sums to 1. It is empty for special pieces, and for text that the source does not know at all.
    """
    characters_S = np.array([len(each.text.strip()) if each else 1 for each in source.surfaces()])
    characters_S[list(source.special)] = 0
    special = set(target.special)
    texts = [(index, each) for index, each in enumerate(target.surfaces()) if each and index not in special]
    inner = _InnerPieces(source)
    rows, columns = [], []
    for (index, surface), ids in zip(texts, source.encode_all([each.text for _, each in texts]), strict=True):
        known = [each for each in ids if characters_S[each]]
        known = inner.cut(known) if surface.initial is False else known
        rows += [index] * len(known)
        columns += known
    totals_T = np.bincount(rows, characters_S[columns], minlength=len(target))
    weights = (characters_S[columns] / totals_T[rows]).astype(np.float32)
    return scipy.sparse.coo_array((weights, (rows, columns)), shape=(len(target), len(source))).tocsr()


class _InnerPieces:
    """The source's pieces inside of words, such as WordPiece's with `##`."""

    def __init__(self, source: Pieces) -> None:
        self._surfaces = source.surfaces()
        inside = ((each.text, index) for index, each in enumerate(self._surfaces) if each and not each.initial)
        self._ids: dict[str, int] = {}
        for text, index in inside:
            self._ids.setdefault(text, index)
        self._longest = max(map(len, self._ids), default=0)

    def cut(self, ids: list[int]) -> list[int]:
        """Cut the text of pieces that begin a word as if it stood inside of one; as it is where that is impossible."""
        surfaces = [self._surfaces[index] for index in ids]
        found = [*self._longest_matches("".join(each.text if each else "" for each in surfaces))]
        return ids if None in surfaces or None in found else [index for index in found if index is not None]

    def _longest_matches(self, text: str) -> Iterator[int | None]:
        """Yield ids of the longest pieces from left to right, as WordPiece does; last, None where there is none."""
        while text:
            lengths = range(min(self._longest, len(text)), 0, -1)
            length = next((length for length in lengths if text[:length] in self._ids), 0)
            yield self._ids.get(text[:length])
            text = text[length:] if length else ""
