"""Order of training rows: shuffled anew every epoch, and computable at any position."""

import functools

import torch
from torch import Tensor

from lingraft.data.rng import make_generator


class ShuffledIndices:
    """Endless sequence of row numbers; every epoch has each row once, in its own order.

    A position is one number, however the rows are divided over processes, so training may resume anywhere.
    """

    def __init__(self, count: int, seed: int, window: int | None = None) -> None:
        """Describe what is shuffled.

        Args:
            count: number of rows, numbered from 0.
            seed: seed of all epochs.
            window: neighbouring rows that stay together: an epoch is a shuffled sequence of windows, each shuffled
                within, so that streaming needs few shards at a time. If None, all rows are one window.
        """
        self.count, self.seed = count, seed
        self.window = min(window or count, count)
        self._shuffled = functools.lru_cache(maxsize=4)(self._shuffle)

    def rows(self, first: int, count: int) -> Tensor:
        """Return the row numbers (count) at the positions `first`, `first` + 1, ... of the sequence, int64."""
        found = []
        while count:
            epoch, place = divmod(first, self.count)
            window, inside = self._window_at(epoch, place)
            taken = self._shuffled(epoch, window)[inside : inside + count]
            found.append(taken)
            first, count = first + len(taken), count - len(taken)
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)

    def _window_at(self, epoch: int, place: int) -> tuple[int, int]:
        """Return the window of a position in an epoch, and the position's offset in the window."""
        windows = -(-self.count // self.window)
        order = self._shuffled(epoch, None) if windows > 1 else torch.zeros(1, dtype=torch.int64)
        short = self.count - (windows - 1) * self.window  # rows of the last window, wherever it comes
        before_short = int((order == windows - 1).nonzero()) * self.window
        if before_short <= place < before_short + short:
            return windows - 1, place - before_short
        shifted = place if place < before_short else place + self.window - short
        return int(order[shifted // self.window]), shifted % self.window

    def _shuffle(self, epoch: int, window: int | None) -> Tensor:
        """Return the order of an epoch's windows, or of the rows of one window."""
        generator = make_generator("order", self.seed, epoch, window)
        if window is None:
            return torch.randperm(-(-self.count // self.window), generator=generator)
        start = window * self.window
        return start + torch.randperm(min(self.window, self.count - start), generator=generator)
