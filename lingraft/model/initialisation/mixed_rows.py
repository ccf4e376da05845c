"""Rows of a language as weighted means of the source's rows, with what stands in where no weights are known.

Legend: S source vocabulary, T target vocabulary, D width.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.decomposition import CuttingPieces, decompose
from lingraft.model.initialisation.initial_rows import InitialRows, initialise_rows, shared_pieces
from lingraft.model.initialisation.piece_classes import PieceClass, Pieces, classes_of

_WORDS = {PieceClass.INITIAL, PieceClass.CONTINUATION}


@dataclass(frozen=True)
class RowMixer:
    """The source's rows, and what is known of a language's pieces before any translation.

    A piece that has no weights gets those of the source's pieces for its text; one that the source cannot read gets a
    `fitted` row.
    """

    source: Vocabulary
    fitted: InitialRows
    decomposed_TS: scipy.sparse.csr_array
    """Weights of the source's pieces into which it cuts the text of each piece."""
    shared: dict[int, int]
    special: dict[int, int]
    classes: list[PieceClass]
    rescales: bool
    """Whether means of several rows, which are shorter than these, are made as long."""

    @classmethod
    def of(
        cls, source: Vocabulary, source_pieces: CuttingPieces, target_pieces: Pieces, seed: int, rescales: bool
    ) -> Self:
        """Compare two tokenizers; the seed decides what is drawn for fitted rows."""
        generator = torch.Generator().manual_seed(seed)
        fitted = initialise_rows(source, source_pieces, target_pieces, generator, fitted=True)
        return cls(
            source=source,
            fitted=fitted,
            decomposed_TS=decompose(source_pieces, target_pieces),
            shared=shared_pieces(source_pieces, target_pieces),
            special=dict(zip(target_pieces.special, source_pieces.special, strict=True)),
            classes=classes_of(target_pieces),
            rescales=rescales,
        )

    @property
    def nothing(self) -> scipy.sparse.csr_array:
        """Weights of nothing."""
        return scipy.sparse.csr_array(self.decomposed_TS.shape, dtype=np.float32)

    def mix(self, weights_TS: scipy.sparse.csr_array) -> InitialRows:
        """Return means of the source's rows by weights (T, S), whose rows sum to 1 or are empty."""
        exact = self._agreeing_pieces(weights_TS) | self.special
        weights_TS = fill_empty(weights_TS, self.decomposed_TS)
        table_TD, bias_T = self.fitted.table_VD.clone(), self.fitted.bias_V.clone()
        source_SD, source_S = (each.detach().cpu().float() for each in (self.source.table_VD, self.source.bias_V))
        known_T = torch.from_numpy(filled(weights_TS))
        table_TD[known_T] = self._means(weights_TS, source_SD)[known_T]
        bias_T[known_T] = torch.from_numpy(weights_TS @ source_S.numpy())[known_T]
        targets, sources = torch.tensor([*exact]), torch.tensor([*exact.values()])
        table_TD[targets], bias_T[targets] = source_SD[sources], source_S[sources]
        return replace(
            self.fitted,
            table_VD=table_TD,
            bias_V=bias_T,
            copied=len(exact),
            copied_by_class=Counter(self.classes[index] for index in exact),
        )

    def _means(self, weights_TS: scipy.sparse.csr_array, source_SD: Tensor) -> Tensor:
        means_TD = torch.from_numpy(weights_TS @ source_SD.numpy())
        if not self.rescales:
            return means_TD
        lengths_T = torch.from_numpy(weights_TS @ source_SD.norm(dim=1).numpy())
        return F.normalize(means_TD) * lengths_T[:, None]

    def _agreeing_pieces(self, weights_TS: scipy.sparse.csr_array) -> dict[int, int]:
        """Shared pieces that mean the same in both languages, as far as is known.

        Words may be false friends, such as German "die": a row is copied where its piece is among the neighbours, or
        nothing is known. Digits and punctuation mean the same everywhere.
        """

        def agrees(target: int, source: int) -> bool:
            near = weights_TS.indices[weights_TS.indptr[target] : weights_TS.indptr[target + 1]]
            return self.classes[target] not in _WORDS or not len(near) or source in near

        return {target: source for target, source in self.shared.items() if agrees(target, source)}


def filled(weights_TS: scipy.sparse.csr_array) -> NDArray[np.bool_]:
    """Return whether each row has weights."""
    return np.diff(weights_TS.indptr) > 0


def fill_empty(weights_TS: scipy.sparse.csr_array, others_TS: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return weights with other ones in rows that are empty."""
    empty_TT = scipy.sparse.diags_array((~filled(weights_TS)).astype(np.float32), format="csr")
    return (weights_TS + empty_TT @ others_TS).tocsr()
