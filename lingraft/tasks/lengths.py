"""In which order examples are seen, where rows of like length are to be together so that little is padded."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lingraft.console import with_progress

if TYPE_CHECKING:
    from lingraft.tasks.kinds import Prepared

_BATCH = 64


def lengths(data: "Prepared") -> Tensor:
    """Tokens of every row (N), int64."""
    return torch.tensor([data.length(row) for row in range(len(data))])


def by_length(data: "Prepared", title: str, batch: int = _BATCH) -> Iterator[Tensor]:
    """Batches of row numbers to be judged, the shortest rows first; shows how far it is."""
    batches = lengths(data).argsort(stable=True).split(batch)
    yield from with_progress(batches, title, "batch", len(batches))
