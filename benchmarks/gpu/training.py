"""Speed of every training against `transformers.Trainer`, its settings, profiles of a step, and a language's hours.

Everything is measured by `benchmarks.speed`, which this only tells what.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parts import Given, Part
from benchmarks.speed.cells import DEEP, MINI, Cell, Shape, Training
from benchmarks.speed.measure import compared, tuned
from benchmarks.speed.orders import Orders
from benchmarks.speed.settings import Settings
from benchmarks.speed.side import Side

FAMILIES = ("roberta", "modern")
PAPER_TOKENS = 125_000 * 2048 * 512
"""Tokens of the paper's pretraining, and of each language's adaptation."""
_TOKENS_AT_ONCE = 32 * 512
"""Tokens of a micro-batch of recipes/base.toml, which are an update here."""
UNCOMPILED = "-uncompiled"
"""End of the name of the part that measures without `torch.compile`."""
_ROUNDS, _WARM_UP, _PROFILED, _KERNELS = 3, 5, 5, 15
_ORDER = (
    (512, Training.MINI),
    (512, Training.PRETRAINING),
    (512, Training.ADAPTATION),
    (128, Training.MINI),
    (128, Training.PRETRAINING),
    (128, Training.STEP_1B),
    (128, Training.FINETUNING),
    (128, Training.ADAPTATION),
    (512, Training.STEP_1B),
    (512, Training.FINETUNING),
)
"""Trainings by worth: what time runs out for is what decides least."""


def shape_of(tokens: int, family: str = "roberta", tiny: bool = False) -> Shape:
    """Return the shape of a base encoder, or of a tiny one, over blocks of so many tokens."""
    if tiny:
        return Shape(f"tiny, {family}, 16 tokens", 32, 2, 300, 16, 2, family)
    blocks = _TOKENS_AT_ONCE // tokens
    return Shape(f"base, {family}, {tokens} tokens", 768, 12, 50_000, tokens, blocks, family)


def cells(tiny: bool) -> list[Cell]:
    """Return all comparisons, those of most worth first."""
    if tiny:
        return [Cell(shape_of(16, "modern", tiny=True), "bf16", Training.MINI)]
    return [Cell(shape_of(tokens, family), "bf16", training) for tokens, training in _ORDER for family in FAMILIES]


def profiled_cells(tiny: bool) -> list[Cell]:
    """Return the trainings of which a step is profiled."""
    if tiny:
        return cells(tiny)
    trainings = (Training.MINI, Training.PRETRAINING)
    return [Cell(shape_of(512, family), "bf16", training) for training in trainings for family in FAMILIES]


def part_name(cell: Cell) -> str:
    """Return the name of a cell's records."""
    return cell.name.replace(",", "").replace(" ", "-")


def parts(tiny: bool) -> Iterator[Part]:
    """Yield the settings of Trainer by family, the comparisons, profiles, and the hours that follow."""
    for family in () if tiny else FAMILIES:
        yield Part("settings", family, partial(_tuned, family))
    for number, cell in enumerate(cells(tiny)):
        yield Part("speed", part_name(cell), partial(_compared, cell))
        if not number:
            yield Part("speed", part_name(cell) + UNCOMPILED, partial(_uncompiled, cell))
    for cell in profiled_cells(tiny):
        yield Part("profile", part_name(cell), partial(_profiled, cell))


def _tuned(family: str, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Try what else may be fastest on a GPU: SDPA with its flash kernels and fused AdamW are the defaults."""
    cell = Cell(shape_of(512, family), "bf16", Training.ADAPTATION)
    return tuned(cell, tries=1, alternatives=({"compiled": True}, {"loader_workers": 4}))


def _compared(cell: Cell, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    chosen = given.record("settings", cell.shape.family).get("found", {}).get("chosen", Settings().plain())
    rounds, side, round_s = (1, 64, 0.05) if given.tiny else (_ROUNDS, 8192, 2.0)
    found = compared(cell, Settings(**chosen), rounds, (side, side, side), round_s)
    return {"cell": cell.plain(), "flops": cell.flops, "least_s": _least_s(cell, given), "settings": chosen} | found


def _uncompiled(cell: Cell, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Our own steps without `torch.compile`: what it brings is the difference from the comparison's."""
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    with Side(cell) as side:
        side.train(_WARM_UP)
        step_s = min(side.train(_PROFILED).step_s for _ in range(_ROUNDS))
    return {"cell": cell.plain(), "step_s": step_s}


def _least_s(cell: Cell, given: Given) -> float | None:
    """Least seconds of an update at the rates that the device was measured to reach, if it was."""
    from benchmarks.gpu.roofline import Rates, cell_least_s

    found = given.record("environment", "device").get("found", {})
    if "copied_bytes_s" not in found:
        return None
    return cell_least_s(cell, Rates(max(found["flop_s"]["bf16"].values()), found["copied_bytes_s"]))


class _ProfiledOrders(Orders):
    """Orders some steps to warm up, and some to be profiled."""

    def __init__(self) -> None:
        self._left = [_WARM_UP, _PROFILED, 0]
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self.profile = torch.profiler.profile(activities=kinds)
        self.step_s = self._began = 0.0

    def wait(self) -> int:
        """Steps to train now; 0: no more."""
        steps = self._left.pop(0)
        if len(self._left) == 1:
            self.profile.start()
        self._began = time.perf_counter()
        return steps

    def done(self, waiting_s: float | None = None) -> None:
        """The steps were trained."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.step_s = (time.perf_counter() - self._began) / _PROFILED
        if len(self._left) == 1:
            self.profile.stop()


def _profiled(cell: Cell, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The kernels that take the most of a step; operations of torch where there is no GPU."""
    from benchmarks.speed.own import serve
    from benchmarks.speed.serve import made_up_blocks
    from benchmarks.speed.store import stored

    orders = _ProfiledOrders()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        serve(cell, stored(made_up_blocks(cell.shape), cell.shape.vocabulary, Path(folder) / "blocks"), orders)
    averages = orders.profile.key_averages()
    if torch.cuda.is_available():
        kernels = [one for one in averages if one.device_type == torch.autograd.DeviceType.CUDA]
        times = [(one.self_device_time_total, one.count, one.key) for one in kernels]
    else:
        times = [(one.self_cpu_time_total, one.count, one.key) for one in averages]
    us_to_ms = 1e3 * _PROFILED
    return {
        "step_ms": 1e3 * orders.step_s,
        "kernels_ms": sum(us for us, _, _ in times) / us_to_ms,
        "kernels": [
            {"name": name, "ms": us / us_to_ms, "calls": calls / _PROFILED}
            for us, calls, name in sorted(times, reverse=True)[:_KERNELS]
        ],
    }


def hours(given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """GPU hours of a language at the paper's tokens, by the rates that the comparisons have measured.

    Progressive depth spends a third of its tokens at 4, at 8 and at 12 layers; a token's seconds at 8 layers are taken
    to lie halfway between those at 4 and at 12.
    """
    rates: dict[str, dict[str, float]] = {}
    for cell in cells(given.tiny):
        record = given.record("speed", part_name(cell))
        if record.get("state") == "ended":
            per_s = cell.shape.tokens_per_step / record["found"]["lingraft"]["step_s"]
            rates.setdefault(cell.shape.name, {})[str(cell.training)] = per_s
    found = {}
    for name, each in rates.items():
        taken_h = {training: PAPER_TOKENS / per_s / 3600 for training, per_s in each.items()}
        if {Training.MINI, Training.ADAPTATION} <= taken_h.keys():
            taken_h[f"progressive adaptation over {MINI}, {(MINI + DEEP) // 2}, {DEEP} layers"] = (
                taken_h[Training.MINI] + taken_h[Training.ADAPTATION]
            ) / 2
        found[name] = taken_h
    return {"tokens": PAPER_TOKENS, "hours": found}
