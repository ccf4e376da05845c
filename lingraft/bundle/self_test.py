"""Golden expected: what PyTorch said to a few drawn rows when a bundle was written, for a server to try itself on.

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
    """Rows of token ids and their expected."""

    tokens_BT: NDArray[np.int64]
    visible_BT: NDArray[np.bool_]
    types_BT: NDArray[np.int64] | None
    expected: dict[str, NDArray[np.float32]]
    """Outputs by name."""

    @classmethod
    def open(cls, file: Path) -> Self:
        """Read a language's expected outputs."""
        held = load_file(file)
        expected = {name: value for name, value in held.items() if name not in _INPUTS}
        return cls(held[TOKENS], held[VISIBLE], held.get(TYPES), expected)

    @property
    def rows(self) -> list[list[int]]:
        """Token ids without padding."""
        return [ids_T[visible_T].tolist() for ids_T, visible_T in zip(self.tokens_BT, self.visible_BT, strict=True)]

    @property
    def types(self) -> list[list[int]] | None:
        """Segments without padding."""
        if self.types_BT is None:
            return None
        return [ids_T[visible_T].tolist() for ids_T, visible_T in zip(self.types_BT, self.visible_BT, strict=True)]

    def max_difference(self, actual: Mapping[str, NDArray[np.float32]]) -> float:
        """Largest absolute difference of an output from its golden answer; not a number where one of them is none."""
        return max_abs_difference(self.expected, actual, self.visible_BT)


def max_abs_difference(
    expected: Mapping[str, NDArray[Any]], actual: Mapping[str, NDArray[Any]], visible_BT: NDArray[np.bool_]
) -> float:
    """Largest absolute difference of an output; what stands at padding means nothing, and does not count."""
    each = [
        np.abs(expected[name] - actual[name])
        if name in ROW_OUTPUTS
        else np.abs(expected[name] - actual[name])[visible_BT]
        for name in expected
    ]
    return float(np.max([one.max() for one in each]))
