"""How many steps were left out because they were not finite, known without waiting for the device."""

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.training.metrics import report_skipped_step


class _SkipFlag(NamedTuple):
    step: int
    bad: Tensor
    copied: torch.cuda.Event | None


class SkippedSteps:
    """Steps that were left out. What a device says of a step is read when the next one has been given to it."""

    def __init__(self, steps: list[int]) -> None:
        """Go on from the steps left out so far."""
        self.steps = steps
        self._flags: deque[_SkipFlag] = deque()

    def add(self, step: int, bad: Tensor) -> None:
        """Note whether a step was left out, a boolean scalar on the device."""
        copied = None
        if bad.is_cuda:
            bad, copied = bad.to("cpu", non_blocking=True), torch.cuda.Event()
            copied.record()
        self._flags.append(_SkipFlag(step, bad, copied))

    def settle(self, waiting: int = 0) -> None:
        """Read all flags but those of the last steps, `waiting` many."""
        while len(self._flags) > waiting:
            flag = self._flags.popleft()
            if flag.copied:
                flag.copied.synchronize()
            if flag.bad:
                self.steps.append(flag.step)
                report_skipped_step()
