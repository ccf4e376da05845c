"""Rows that a language's embeddings start from, before any training.

Legend: V vocabulary, D width.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds, Surface
from lingraft.errors import TokenizerError
from lingraft.model.encoder import INITIAL_STD, BorrowedRows, Vocabulary
from lingraft.model.initialisation.fitted_rows import draw_fitted_rows
from lingraft.model.initialisation.piece_classes import PieceClass, Pieces, classes_of


@dataclass(frozen=True)
class InitialRows:
    """Rows for a new vocabulary, before any training."""

    table_VD: Tensor
    bias_V: Tensor
    copied: int
    """Pieces whose rows are the source's, special pieces included."""
    copied_by_class: dict[PieceClass, int]
    pieces_by_class: dict[PieceClass, int]
    special: SpecialIds = DEFAULT_SPECIAL_IDS
    """Ids of the new vocabulary's special pieces."""
    borrowed: BorrowedRows | None = None
    """References to the source's rows, for pieces behind these."""

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many pieces of each class there are and how many of them were copied, for a manifest."""
        return {
            str(kind): {"pieces": pieces, "copied": self.copied_by_class.get(kind, 0)}
            for kind, pieces in self.pieces_by_class.items()
        }


def initialise_rows(
    source: Vocabulary, source_pieces: Pieces, target_pieces: Pieces, generator: torch.Generator, fitted: bool = False
) -> InitialRows:
    """Copy rows of shared pieces from the source with their output bias, and draw the rest (paper, footnote 1).

    The same generator gives the same rows. The source may have another size and other special ids.

    Args:
        source: the primary's table (V, D) and output bias (V).
        source_pieces: what its ids are, such as its `Tokenizer`.
        target_pieces: what the new ids are.
        generator: the only source of randomness, on the CPU.
        fitted: whether the rest is drawn around a fit to the source's rows, and not from N(0, 0.02).
    """
    _require_fit(source, source_pieces)
    source_VD, source_V = (tensor.detach().cpu().float() for tensor in (source.table_VD, source.bias_V))
    size, width = len(target_pieces), source_VD.shape[1]
    table_VD, bias_V = torch.empty(size, width).normal_(std=INITIAL_STD, generator=generator), torch.zeros(size)
    if fitted:
        draw_fitted_rows(
            table_VD=table_VD,
            bias_V=bias_V,
            source_table_VD=source_VD,
            source_bias_V=source_V,
            source_pieces=source_pieces,
            target_pieces=target_pieces,
            generator=generator,
        )
    shared = shared_pieces(source_pieces, target_pieces)
    shared |= dict(zip(target_pieces.special, source_pieces.special, strict=True))
    targets, sources = torch.tensor([*shared]), torch.tensor([*shared.values()])
    table_VD[targets], bias_V[targets] = source_VD[sources], source_V[sources]
    classes = classes_of(target_pieces)
    return InitialRows(
        table_VD=table_VD,
        bias_V=bias_V,
        copied=len(shared),
        copied_by_class=Counter(classes[index] for index in shared),
        pieces_by_class=Counter(classes),
        special=target_pieces.special,
    )


def shared_pieces(source_pieces: Pieces, target_pieces: Pieces) -> dict[int, int]:
    """Source id by target id, of pieces that are not special, decode to the same text and agree in beginning a word.

    A piece that does not tell whether it begins a word agrees with any, but comes behind one that tells the same. Of
    several source pieces that read alike, the first is taken.
    """
    source_ids = {surface: index for index, surface in reversed([*_ordinary(source_pieces)])}
    matches = ((index, _match(surface, source_ids)) for index, surface in _ordinary(target_pieces))
    return {index: source_id for index, source_id in matches if source_id is not None}


def _match(wanted: Surface, source_ids: Mapping[Surface, int]) -> int | None:
    # Punctuation and Chinese characters, which WordPiece does not tell about, mostly follow without a space elsewhere.
    agreeing = (None, False, True) if wanted.initial is None else (wanted.initial, None)
    surfaces = (Surface(wanted.text, initial) for initial in agreeing)
    return next((source_ids[surface] for surface in surfaces if surface in source_ids), None)


def _ordinary(pieces: Pieces) -> Iterator[tuple[int, Surface]]:
    special = set(pieces.special)
    return ((index, each) for index, each in enumerate(pieces.surfaces()) if each is not None and index not in special)


def _require_fit(source: Vocabulary, pieces: Pieces) -> None:
    size = len(pieces)
    if len(source) != size:
        raise TokenizerError(
            f"the source has {len(source)} rows, but its tokenizer {size} pieces. Give the one it was trained with."
        )
    if size == len(set(pieces.special)):
        raise TokenizerError(f"all {size} pieces of the source are special ones. Take a primary that has read text.")
