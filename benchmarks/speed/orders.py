"""How a side is told, as a process of its own, to train some steps, and says how long they took.

Orders are lines of standard input, each a number of steps; answers are lines of JSON on the standard output that the
process began with. While one side waits the other has the machine to itself.
"""

import json
import os
import resource
import sys
import time

import torch

from benchmarks.speed.memory import resident_peak_bytes


class Orders:
    """The side's end of the line."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        # What libraries print goes the way of errors, so that answers stay readable.
        os.dup2(2, 1)
        self._started = self._cpu_started = 0.0

    def wait(self) -> int:
        """Steps to train now; 0: no more."""
        line = sys.stdin.readline()
        self._started, self._cpu_started = time.perf_counter(), _cpu_s()
        return int(line) if line else 0

    def done(self, waiting_s: float | None = None) -> None:
        """Say that the steps were trained.

        Args:
            waiting_s: seconds of a step spent waiting for its batch, where that is known.
        """
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        answer = {
            "seconds": time.perf_counter() - self._started,
            "cpu_s": _cpu_s() - self._cpu_started,
            "peak_bytes": peak_bytes(),
            "waiting_s": waiting_s,
        }
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


def peak_bytes() -> int:
    """The most memory that this process has held: of the GPU if there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resident_peak_bytes()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
