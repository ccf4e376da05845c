"""Rows drawn like the source's rows of pieces of the same kind, where aligned rows have nothing better.

A row says much about its piece before any meaning: a trained table has other rows for frequent pieces than for rare
ones, for beginnings of words, for digits. A fit to the source's rows tells what to expect of a piece by its place in
the vocabulary (SentencePiece, byte-level BPE and WordPiece order theirs by frequency, so id order is a frequency
rank), class, length and script. What it is worth: docs/decisions/0007-initialisation.md.

Legend: V vocabulary, N its pieces that are not special, F features, O a row with its output bias behind it, S scripts.
"""

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from lingraft.data.rng import single_threaded
from lingraft.data.tokenizer.pieces import Surface
from lingraft.model.encoder import INITIAL_STD
from lingraft.model.initialisation.piece_classes import PieceClass, Pieces, class_of, is_letter

_ROWS_AT_ONCE = 16_384
"""Bounds memory: 100 MB at RoBERTa-base's width."""
_LONGEST = 10
"""Characters; longer pieces count as this long."""
_NEGLIGIBLE = 1e-10
"""Features that the others determine to this precision get no weight of their own."""
_ROWS_TO_TRUST_A_SCRIPT = 16


class PieceFeatures(NamedTuple):
    """The pieces of a vocabulary, special ones left out."""

    ids_N: Tensor
    features_NF: Tensor
    scripts: list[str]
    """Script of each piece's first letter, as the first word of the letter's Unicode name; "" without letters."""

    @classmethod
    def of(cls, pieces: Pieces) -> Self:
        """Describe a vocabulary."""
        special = set(pieces.special)
        kept = [(index, surface) for index, surface in enumerate(pieces.surfaces()) if index not in special]
        rows = [_features(surface, rank) for rank, (_, surface) in enumerate(kept)]
        ids_N, features_NF = torch.tensor([index for index, _ in kept]), torch.tensor(rows, dtype=torch.float64)
        return cls(ids_N, features_NF, [_script(surface) for _, surface in kept])

    def parts(self) -> Iterator["PieceFeatures"]:
        """A few thousand pieces at a time."""
        for start in range(0, len(self.ids_N), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            yield PieceFeatures(self.ids_N[part], self.features_NF[part], self.scripts[part])


@dataclass(frozen=True)
class RowProfile:
    """Expected row of each kind of piece, and how far rows are from it.

    Nothing is extrapolated: a feature outside the range that the fit has seen counts as the nearest value within.
    """

    weights_FO: Tensor
    range_2F: Tensor
    """Smallest and largest value of each feature that the fit has seen."""
    scripts: dict[str, int]
    script_means_SO: Tensor
    """Mean difference of a script's rows from the fit; those of scripts of few pieces are drawn towards 0."""
    std_O: Tensor
    """Never below the standard deviation of other initial rows, or pieces of one kind might all be alike."""

    @classmethod
    def of(cls, table_VD: Tensor, bias_V: Tensor, pieces: PieceFeatures) -> Self:
        """Fit by least squares."""
        weights_FO = _least_squares(table_VD, bias_V, pieces)
        names = {name: index for index, name in enumerate(sorted(set(pieces.scripts)))}
        sums_SO = torch.zeros(len(names), weights_FO.shape[1], dtype=torch.float64)
        counts_S1, squares_O = torch.zeros(len(names), 1, dtype=torch.float64), torch.zeros_like(sums_SO[0])
        for part in pieces.parts():
            rest_NO = _outputs(table_VD, bias_V, part) - part.features_NF @ weights_FO
            scripts_N = torch.tensor([names[name] for name in part.scripts])
            sums_SO.index_add_(0, scripts_N, rest_NO)
            counts_S1 += torch.bincount(scripts_N, minlength=len(names))[:, None]
            squares_O += rest_NO.square().sum(0)
        means_SO = sums_SO / (counts_S1 + _ROWS_TO_TRUST_A_SCRIPT)
        left_O = squares_O + (means_SO * (counts_S1 * means_SO - 2 * sums_SO)).sum(0)
        std_O = (left_O.clamp(min=0) / counts_S1.sum()).sqrt().clamp(min=INITIAL_STD)
        return cls(weights_FO, torch.stack(pieces.features_NF.aminmax(dim=0)), names, means_SO, std_O)

    def expected(self, pieces: PieceFeatures) -> Tensor:
        """Rows with output bias (N, O); a script that the fit has not seen makes no difference."""
        unseen = len(self.scripts)
        scripts_N = torch.tensor([self.scripts.get(name, unseen) for name in pieces.scripts])
        means_SO = torch.cat([self.script_means_SO, torch.zeros_like(self.script_means_SO[:1])])
        return pieces.features_NF.clamp(*self.range_2F) @ self.weights_FO + means_SO[scripts_N]


def draw_fitted_rows(
    table_VD: Tensor,
    bias_V: Tensor,
    source_table_VD: Tensor,
    source_bias_V: Tensor,
    source_pieces: Pieces,
    target_pieces: Pieces,
    generator: torch.Generator,
) -> None:
    """Fill `table_VD` with rows drawn around what the source's rows make one expect, and `bias_V` with that bias.

    Rows differ from what is expected, in each dimension, as much as the source's do; a bias does not.

    Args:
        table_VD: filled in place, except for special pieces.
        bias_V: likewise.
        source_table_VD: rows to resemble, float32 on the CPU.
        source_bias_V: their output bias.
        source_pieces: the source's, at least one of them not special.
        target_pieces: what the rows are for.
        generator: the only source of randomness.
    """
    with single_threaded():
        profile = RowProfile.of(source_table_VD, source_bias_V, PieceFeatures.of(source_pieces))
        for part in PieceFeatures.of(target_pieces).parts():
            expected_NO = profile.expected(part).float()
            noise_ND = torch.empty(len(part.ids_N), table_VD.shape[1]).normal_(generator=generator)
            table_VD[part.ids_N] = expected_NO[:, :-1] + profile.std_O[:-1].float() * noise_ND
            bias_V[part.ids_N] = expected_NO[:, -1]


def _features(surface: Surface | None, rank: int) -> tuple[float, ...]:
    """Return a piece's features; the place is a log, because frequency falls by a power of the rank (Zipf)."""
    kind, place = class_of(surface), math.log(rank + 2)
    length, initial = (min(len(surface.text), _LONGEST), bool(surface.initial)) if surface else (0, False)
    kinds = (kind is PieceClass.DIGITS, kind is PieceClass.OTHER, kind is PieceClass.NO_TEXT)
    return (1.0, place, place**2, initial, initial * place, length, length**2, *kinds)


def _script(surface: Surface | None) -> str:
    letter = next(filter(is_letter, surface.text if surface else ""), None)
    return unicodedata.name(letter, "").partition(" ")[0] if letter else ""


def _least_squares(table_VD: Tensor, bias_V: Tensor, pieces: PieceFeatures) -> Tensor:
    """Weights (F, O) by the normal equations, on features of equal scale; of equally good ones the smallest."""
    scale_F = pieces.features_NF.square().mean(0).sqrt().clamp(min=_NEGLIGIBLE)
    width = table_VD.shape[1]
    gram_FF = torch.zeros(len(scale_F), len(scale_F), dtype=torch.float64)
    moments_FO = torch.zeros(len(scale_F), width + 1, dtype=torch.float64)
    for part in pieces.parts():
        features_NF = part.features_NF / scale_F
        gram_FF += features_NF.T @ features_NF
        moments_FO += features_NF.T @ _outputs(table_VD, bias_V, part)
    inverse_FF = torch.linalg.pinv(gram_FF, rtol=_NEGLIGIBLE, hermitian=True)
    return inverse_FF @ moments_FO / scale_F[:, None]


def _outputs(table_VD: Tensor, bias_V: Tensor, pieces: PieceFeatures) -> Tensor:
    return torch.cat([table_VD[pieces.ids_N], bias_V[pieces.ids_N, None]], 1).double()
