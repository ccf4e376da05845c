"""Where one of our own steps on a CPU spends its time, timed in place.

    python -m benchmarks.speed.breakdown [--family modern] [--only "128 tokens, bf16"] [--tokens 4096] [--steps 4]

Every operation of torch is timed as the training thread runs it. Those within attention, cross-entropy (with its
products) and the optimizer count as theirs, all others as what they are. What is left is Python, timing itself, and
waiting for batches.
"""

import argparse
import functools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.cells import FAMILIES, Cell, cells
from benchmarks.speed.machine import commit, described
from benchmarks.speed.orders import Orders
from benchmarks.speed.own import serve
from benchmarks.speed.serve import made_up_blocks
from benchmarks.speed.store import stored
from lingraft.model.kernels import attention, cross_entropy
from lingraft.tables import markdown_table
from lingraft.training.optimizer import Optimizer

PRODUCTS = "products of matrices"
_WARMUP = 3
_KINDS = {
    **dict.fromkeys(("mm", "addmm"), PRODUCTS),
    **dict.fromkeys(("gelu", "gelu_backward"), "activation"),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward"), "LayerNorm"),
    **dict.fromkeys(("_to_copy", "clone", "copy_"), "casts and copies"),
    **dict.fromkeys(("add", "add_", "sum"), "sums"),
}
"""Kinds of operations outside of the parts below."""
_OTHER = "other operations"
_PARTS = (
    (attention, "attend", "attention"),
    (attention, "attend_backward", "attention"),
    (cross_entropy._SummedCrossEntropy, "forward", "cross-entropy"),
    (cross_entropy._SummedCrossEntropy, "backward", "cross-entropy"),
    (Optimizer, "step", "optimizer"),
)
"""Functions whose operations count as a part's."""


class Clock(TorchDispatchMode):
    """Seconds of operations by part, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_s: dict[str, float] = defaultdict(float)
        self.product_flops = 0
        """Of the products outside of parts."""
        self._part: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        kind = self._part or _KINDS.get(name, _OTHER)
        started = time.perf_counter()
        found = func(*args, **(kwargs or {}))
        self.spent_s[kind] += time.perf_counter() - started
        if kind == PRODUCTS:
            self.product_flops += 2 * args[-2].numel() * args[-1].shape[1]
        return found

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Count the operations of parts as theirs."""
        held = [(owner, name, vars(owner)[name]) for owner, name, _ in _PARTS]
        for owner, name, part in _PARTS:
            counted = self._counted(getattr(owner, name), part)
            setattr(owner, name, staticmethod(counted) if isinstance(vars(owner)[name], staticmethod) else counted)
        try:
            yield
        finally:
            for owner, name, function in held:
                setattr(owner, name, function)

    def _counted(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._part = part
            try:
                return function(*args, **kwargs)
            finally:
                self._part = None

        return counted


class TimedOrders(Orders):
    """Orders some steps to warm up, some to be timed as a whole, and as many to be timed by part."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self._clock, self._left = clock, [_WARMUP, steps, steps, 0]
        self._begun = 0.0
        self.steps_s: list[float] = []
        """Of a step, in each of the three."""
        self._steps = 0

    def wait(self) -> int:
        """Steps to train now; 0: no more."""
        self._steps = self._left.pop(0)
        if len(self._left) == 1:
            self._clock.__enter__()
        self._begun = time.perf_counter()
        return self._steps

    def done(self, waiting_s: float | None = None) -> None:
        """The steps were trained."""
        self.steps_s.append((time.perf_counter() - self._begun) / self._steps)
        if len(self._left) == 1:
            self._clock.__exit__(None, None, None)


def broken_down(cell: Cell, steps: int) -> str:
    """A step's parts as Markdown: milliseconds and shares."""
    clock = Clock()
    orders = TimedOrders(clock, steps)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder, clock.parts():
        serve(cell, stored(made_up_blocks(cell.shape), cell.shape.vocabulary, Path(folder) / "blocks"), orders)
    _, plain_s, timed_s = orders.steps_s
    rest_s = timed_s - sum(clock.spent_s.values()) / steps
    parts = sorted(((spent_s / steps, name) for name, spent_s in clock.spent_s.items()), reverse=True)
    rows = [[name, f"{spent_s * 1e3:,.1f}", f"{spent_s / timed_s:.1%}"] for spent_s, name in [*parts, (rest_s, "rest")]]
    products_s = clock.spent_s[PRODUCTS]
    return (
        f"{cell.name}: {plain_s * 1e3:,.0f} ms a step, {timed_s * 1e3:,.0f} ms while timed in place; "
        f"{cell.flops / plain_s / 1e9:,.0f} GFLOP/s by the paper's formulas, products outside of parts at "
        f"{clock.product_flops / products_s / 1e9:,.0f}\n\n{markdown_table(['part', 'ms a step', 'share'], rows)}\n"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, default="roberta", help="of the encoders")
    parser.add_argument("--only", default="128 tokens, bf16", help="trainings whose name has this in it")
    parser.add_argument("--tokens", type=int, default=4096, help="of an update")
    parser.add_argument("--steps", type=int, default=4, help="over which times are means")
    given = parser.parse_args()
    if torch.cuda.is_available():
        parser.error("a GPU runs on while Python does: hide it (CUDA_VISIBLE_DEVICES=), or use its own profiler")
    print(f"{described()['device']}, torch {torch.__version__}, commit {commit() or 'unknown'}\n")
    for cell in cells(given.tokens, given.family):
        if given.only in cell.name:
            print(broken_down(cell, given.steps), flush=True)


if __name__ == "__main__":
    main()
