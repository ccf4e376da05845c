"""A language's token table, read in place from its file.

Legend: N tokens, V vocabulary, D width, B borrowed pieces.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lingraft.artifacts.tensor_file import map_tensor, tensor_spans
from lingraft.bundle.format import SCALE, TABLE, TABLE_FORMATS
from lingraft.errors import ArtifactError

_CHUNK_ROWS = 4096
"""Number of rows that `dot` converts to float32 at once."""


@dataclass(frozen=True)
class EmbeddingTable:
    """Token table in float32, float16, or int8 with a scale for each row; memory-mapped, so that processes share it."""

    table_VD: NDArray[Any]
    scale_V: NDArray[np.float32] | None
    """Scales of int8 rows; None for float formats."""

    @classmethod
    def open(cls, file: Path) -> Self:
        """Map a table's safetensors file into memory, without reading its rows."""
        found = {name: map_tensor(file, span) for name, span in tensor_spans(file).items()}
        names = {TABLE, SCALE} if TABLE in found and found[TABLE].dtype == np.int8 else {TABLE}
        if found.keys() != names or found[TABLE].dtype.name not in TABLE_FORMATS:
            shown = {name: str(value.dtype) for name, value in found.items()}
            raise ArtifactError(
                f"{file} has {shown}, and is no table: that has {TABLE!r} of {list(TABLE_FORMATS)}, and of int8 "
                f"{SCALE!r} besides. Export the bundle again."
            )
        scale_V = np.array(found[SCALE], np.float32) if SCALE in found else None
        return cls(found[TABLE], scale_V)

    def __len__(self) -> int:
        return len(self.table_VD)

    @property
    def width(self) -> int:
        """Width of a row, D."""
        return int(self.table_VD.shape[1])

    @property
    def nbytes(self) -> int:
        """Size of all rows and scales in bytes."""
        return self.table_VD.nbytes + (0 if self.scale_V is None else self.scale_V.nbytes)

    def rows(self, ids_N: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return the rows (N, D) of token ids, in float32."""
        if len(ids_N) and not 0 <= ids_N.min() <= ids_N.max() < len(self):
            raise IndexError(f"ids from {ids_N.min()} to {ids_N.max()} are not all in a table of {len(self)} rows")
        rows_ND: NDArray[np.float32] = self.table_VD[ids_N].astype(np.float32, copy=False)
        return rows_ND if self.scale_V is None else rows_ND * self.scale_V[ids_N, None]

    def dot(
        self, features_ND: NDArray[np.float32], ids_V: NDArray[np.integer[Any]] | None = None
    ) -> NDArray[np.float32]:
        """Return the products (N, V) of features with every row: fill-mask's logits, without the output bias.

        `ids_V` are the rows to multiply with, in their order; all rows if None.
        """
        ids_V = np.arange(len(self)) if ids_V is None else ids_V
        chunks = (ids_V[start : start + _CHUNK_ROWS] for start in range(0, len(ids_V), _CHUNK_ROWS))
        return np.concatenate([features_ND @ self.rows(ids_X).T for ids_X in chunks], axis=1)


@dataclass(frozen=True)
class BorrowingTable:
    """A language's own table, behind whose rows stand some of the source's; these are looked up in the source's own."""

    own: EmbeddingTable
    source: EmbeddingTable
    borrowed_B: NDArray[np.int32]
    """The source's ids."""

    def __len__(self) -> int:
        return len(self.own) + len(self.borrowed_B)

    @property
    def width(self) -> int:
        """Width of a row, D."""
        return self.own.width

    @property
    def nbytes(self) -> int:
        """Size of the language's own rows and scales in bytes."""
        return self.own.nbytes

    def rows(self, ids_N: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return the rows (N, D) of token ids, in float32."""
        is_own_N = ids_N < len(self.own)
        rows_ND = np.empty((len(ids_N), self.width), np.float32)
        rows_ND[is_own_N] = self.own.rows(ids_N[is_own_N])
        rows_ND[~is_own_N] = self.source.rows(self.borrowed_B[ids_N[~is_own_N] - len(self.own)])
        return rows_ND

    def dot(self, features_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the products (N, V + B) of features with every row, without the output bias."""
        return np.concatenate([self.own.dot(features_ND), self.source.dot(features_ND, self.borrowed_B)], axis=1)
