"""In which order training sees its rows: shuffled anew every epoch, and known at any place by itself."""

import functools

import torch
from torch import Tensor

from lingraft.data.rng import make_generator


class ShuffledIndices:
    """An endless sequence of row numbers; every epoch has each row once, in an order of its own.

    A place in it is one number, however the rows are divided over processes, so training may go on from anywhere.
    """

    def __init__(self, count: int, seed: int, window: int | None = None) -> None:
        """Say what is shuffled.

        Args:
            count: rows, numbered from 0.
            seed: decides all epochs.
            window: neighbouring rows that stay together: an epoch is a shuffled sequence of windows, each shuffled
                within. What is streamed then needs few shards at a time. All rows are one window if absent.
        """
        self.count, self.seed = count, seed
        self.window = min(window or count, count)
        self._shuffled = functools.lru_cache(maxsize=4)(self._shuffle)

    def rows(self, first: int, count: int) -> Tensor:
        """Row numbers (count) at the places `first`, `first` + 1, ... of the sequence, int64."""
        found = []
        while count:
            epoch, place = divmod(first, self.count)
            window, inside = self._window_at(epoch, place)
            taken = self._shuffled(epoch, window)[inside : inside + count]
            found.append(taken)
            first, count = first + len(taken), count - len(taken)
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)

    def _window_at(self, epoch: int, place: int) -> tuple[int, int]:
        """Which window a place of an epoch lies in, and how far behind its beginning."""
        windows = -(-self.count // self.window)
        order = self._shuffled(epoch, None) if windows > 1 else torch.zeros(1, dtype=torch.int64)
        short = self.count - (windows - 1) * self.window  # rows of the last window, wherever it comes
        before_short = int((order == windows - 1).nonzero()) * self.window
        if before_short <= place < before_short + short:
            return windows - 1, place - before_short
        shifted = place if place < before_short else place + self.window - short
        return int(order[shifted // self.window]), shifted % self.window

    def _shuffle(self, epoch: int, window: int | None) -> Tensor:
        """The order of an epoch's windows, or of the rows of one window."""
        generator = make_generator("order", self.seed, epoch, window)
        if window is None:
            return torch.randperm(-(-self.count // self.window), generator=generator)
        start = window * self.window
        return start + torch.randperm(min(self.window, self.count - start), generator=generator)
