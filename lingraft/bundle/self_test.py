"""Self-test of a language in a bundle: random inputs and PyTorch's outputs, which a server must reproduce.

Legend: B rows, T tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lingraft.bundle.format import ROW_OUTPUTS, TOKENS, TYPES, VISIBLE

_INPUTS = {TOKENS, VISIBLE, TYPES}


@dataclass(frozen=True)
class SelfTest:
    """Rows of token ids with the outputs that PyTorch computed for them at export."""

    tokens_BT: NDArray[np.int64]
    visible_BT: NDArray[np.bool_]
    types_BT: NDArray[np.int64] | None
    expected: dict[str, NDArray[np.float32]]
    """PyTorch's outputs by name."""

    @classmethod
    def open(cls, file: Path) -> Self:
        """Read a language's self-test."""
        tensors = load_file(file)
        expected = {name: value for name, value in tensors.items() if name not in _INPUTS}
        return cls(tensors[TOKENS], tensors[VISIBLE], tensors.get(TYPES), expected)

    @property
    def rows(self) -> list[list[int]]:
        """Token ids of each row, without padding."""
        return [ids_T[visible_T].tolist() for ids_T, visible_T in zip(self.tokens_BT, self.visible_BT, strict=True)]

    @property
    def types(self) -> list[list[int]] | None:
        """Segment ids of each row, without padding; None if the family has no segments."""
        if self.types_BT is None:
            return None
        return [ids_T[visible_T].tolist() for ids_T, visible_T in zip(self.types_BT, self.visible_BT, strict=True)]


def max_abs_difference(
    expected: Mapping[str, NDArray[Any]], actual: Mapping[str, NDArray[Any]], visible_BT: NDArray[np.bool_]
) -> float:
    """Return the largest absolute difference of an output, NaN if either has a NaN.

    Values at padding are undefined, and are ignored.
    """
    differences = [
        np.abs(expected[name] - actual[name])
        if name in ROW_OUTPUTS
        else np.abs(expected[name] - actual[name])[visible_BT]
        for name in expected
    ]
    return float(np.max([difference.max() for difference in differences]))
