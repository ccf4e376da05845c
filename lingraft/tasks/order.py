"""In which order examples are judged."""

from collections.abc import Iterator, Sequence, Sized

import torch
from torch import Tensor

from lingraft.progress import counted

EVALUATION_BATCH = 64


def by_length(rows: Sequence[Sized], title: str) -> Iterator[Tensor]:
    """Batches of row numbers, the shortest rows first, so that little is padded; shows how far it is."""
    batches = torch.tensor([len(row) for row in rows]).argsort(stable=True).split(EVALUATION_BATCH)
    yield from counted(batches, title, "batch", len(batches))
