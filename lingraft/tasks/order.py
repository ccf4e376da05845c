"""In which order examples come: shuffled for training, by length for judging."""

from collections.abc import Iterator, Sequence, Sized

import torch
from torch import Tensor

from lingraft.progress import counted

EVALUATION_BATCH = 64


def shuffled(count: int, batch_rows: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Endless batches of row numbers; each epoch a new order, whose last batch may be smaller."""
    while True:
        yield from torch.randperm(count, generator=generator).split(batch_rows)


def by_length(rows: Sequence[Sized], title: str) -> Iterator[Tensor]:
    """Batches of row numbers, the shortest rows first, so that little is padded; shows how far it is."""
    batches = torch.tensor([len(row) for row in rows]).argsort(stable=True).split(EVALUATION_BATCH)
    yield from counted(batches, title, "batch", len(batches))
