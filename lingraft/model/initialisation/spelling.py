"""Likeness of pieces by their letters: what is spelled alike in two languages mostly means the same (cognates, names).

Legend: S source vocabulary, T target vocabulary, K candidates of a piece, G bigrams of letters.
"""

import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from lingraft.model.initialisation.piece_classes import Pieces

_FEWEST_LETTERS = 3
_LEAST_ALIKE = 0.5
_BIGRAMS = 1 << 16
Array = NDArray[Any]


@dataclass(frozen=True)
class Spelling:
    """Bigrams of the letters of two languages' pieces."""

    source_SG: scipy.sparse.csr_array
    target_TG: scipy.sparse.csr_array

    @classmethod
    def of(cls, source: Pieces, target: Pieces) -> Self:
        """Read the pieces of two tokenizers, without accents and upper case."""
        return cls(_bigrams(source), _bigrams(target))

    @property
    def turned(self) -> "Spelling":
        """Swap source and target."""
        return Spelling(self.target_TG, self.source_SG)

    def likeness(self, candidates_TK: Array) -> Array:
        """Return the squared Dice coefficient of each target piece and its candidates (T, K); 0 below a half.

        A candidate beyond the source's vocabulary is none.
        """
        rows_C, columns_C = np.nonzero(candidates_TK < self.source_SG.shape[0])
        sources_C = candidates_TK[rows_C, columns_C]
        common_C = self.target_TG[rows_C].multiply(self.source_SG[sources_C]).sum(axis=1)
        sizes_C = np.diff(self.target_TG.indptr)[rows_C] + np.diff(self.source_SG.indptr)[sources_C]
        dice_C = 2 * common_C / np.maximum(sizes_C, 1)
        found_TK = np.zeros(candidates_TK.shape, np.float32)
        found_TK[rows_C, columns_C] = np.where(dice_C > _LEAST_ALIKE, dice_C**2, 0)
        return found_TK


def _bigrams(pieces: Pieces) -> scipy.sparse.csr_array:
    """Mark the bigrams of each piece's letters (V, G), of which the first begins the piece; a short one has none."""
    found = [_of_text(surface.text if surface else "") for surface in pieces.surfaces()]
    ids = np.fromiter((each for row in found for each in row), np.int32)
    ends = np.cumsum([0, *map(len, found)])
    return scipy.sparse.csr_array((np.ones(len(ids), np.float32), ids, ends), shape=(len(found), _BIGRAMS))


def _of_text(text: str) -> list[int]:
    letters = "".join(each for each in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(each))
    if len(letters) < _FEWEST_LETTERS or not letters.isalpha():
        return []
    return sorted({(ord(first) * 257 + ord(second)) % _BIGRAMS for first, second in pairwise(f" {letters}")})
