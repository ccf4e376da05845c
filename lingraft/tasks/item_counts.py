"""Counts that a score is made of, item by item, by which two evaluations are compared.

Legend: N items, such as blocks, texts or questions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from lingraft.errors import ArtifactError

Counts = NDArray[np.float64]
_FOUND, _OUT_OF = "found", "out_of"


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """Counts of each item: how much was found, and out of how much; accuracy and micro F1 are their sums' ratio."""

    found_N: Counts
    out_of_N: Counts

    @classmethod
    def of(cls, found: ArrayLike, out_of: ArrayLike | None = None) -> Self:
        """Make counts of numbers of any kind; items count as 1 each without `out_of`."""
        found_N = np.asarray(found, np.float64)
        return cls(found_N, np.ones_like(found_N) if out_of is None else np.asarray(out_of, np.float64))

    def __len__(self) -> int:
        return len(self.found_N)

    @property
    def score(self) -> float:
        """Ratio of the sums, 0 to 1; 0 where there was nothing to find."""
        return float(self.found_N.sum() / max(self.out_of_N.sum(), 1.0))


def save(tallies: Mapping[str, ItemCounts], path: Path) -> None:
    """Write counts by name as safetensors."""
    parts = {f"{name}/{_FOUND}": tally.found_N for name, tally in tallies.items()}
    save_file(parts | {f"{name}/{_OUT_OF}": tally.out_of_N for name, tally in tallies.items()}, path)


def load(path: Path) -> dict[str, ItemCounts]:
    """Read counts by name, as `save` wrote them."""
    try:
        parts = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}. Judge again with this lingraft.") from error
    names = [name.removesuffix(f"/{_FOUND}") for name in parts if name.endswith(f"/{_FOUND}")]
    return {name: ItemCounts(parts[f"{name}/{_FOUND}"], parts[f"{name}/{_OUT_OF}"]) for name in sorted(names)}
