"""Speed of every training against `transformers.Trainer`, its settings, profiles of a step, and a language's hours.

Everything is measured by `benchmarks.speed`, which this only tells what.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.gpu.parts import Given, Part
from benchmarks.speed.cells import DEEP, MINI, Cell, Shape, Training
from benchmarks.speed.measure import compared_together, fastest, tried_together
from benchmarks.speed.orders import Orders
from benchmarks.speed.settings import Settings
from benchmarks.speed.side import Side
from lingraft.training.precision import device

FAMILIES = ("roberta", "modern")
PAPER_TOKENS = 125_000 * 2048 * 512
"""Tokens of the paper's pretraining, and of each language's adaptation."""
_TOKENS_AT_ONCE = 32 * 512
"""Tokens of a micro-batch of recipes/base.toml, which are an update here."""
UNCOMPILED = "uncompiled"
"""Name of the part that measures without `torch.compile`."""
_MORE = 128, 256
"""Blocks of 512 tokens in larger micro-batches, which our side alone is measured with."""
_ROOMY_BYTES = 75e9
"""Memory of a GPU that holds all sides of a shape together."""
Item = TypeVar("Item")
_ROUNDS, _WARM_UP, _TIMED, _PROFILED, _KERNELS = 3, 5, 30, 5, 15
_ORDER = (
    Training.MINI,
    Training.PRETRAINING,
    Training.ADAPTATION,
    Training.STEP_1B,
    Training.FINETUNING,
)
"""Trainings by worth: what time runs out for is what decides least."""
_BLOCK_TOKENS = 512, 128


def shape_of(tokens: int, family: str = "roberta", tiny: bool = False) -> Shape:
    """Return the shape of a base encoder, or of a tiny one, over blocks of so many tokens."""
    if tiny:
        return Shape(
            name=f"tiny, {family}, 16 tokens",
            width=32,
            attention_heads=2,
            vocabulary=300,
            tokens=16,
            blocks=2,
            family=family,
        )
    return Shape(
        name=f"base, {family}, {tokens} tokens",
        width=768,
        attention_heads=12,
        vocabulary=50_000,
        tokens=tokens,
        blocks=_TOKENS_AT_ONCE // tokens,
        family=family,
    )


def shapes(tiny: bool) -> list[Shape]:
    """Return all shapes that are compared, those of most worth first."""
    if tiny:
        return [shape_of(16, "modern", tiny=True)]
    return [shape_of(tokens, family) for tokens in _BLOCK_TOKENS for family in FAMILIES]


def cells(shape: Shape) -> list[Cell]:
    """Return the comparisons of a shape, those of most worth first."""
    trainings = _ORDER[:1] if shape == shape_of(16, "modern", tiny=True) else _ORDER
    return [Cell(shape, "bf16", training) for training in trainings]


def profiled_cells(tiny: bool) -> list[Cell]:
    """Return the trainings of which a step is profiled."""
    if tiny:
        return cells(*shapes(tiny))
    trainings = (Training.MINI, Training.PRETRAINING)
    return [Cell(shape_of(512, family), "bf16", training) for training in trainings for family in FAMILIES]


def parts(tiny: bool) -> Iterator[Part]:
    """Yield the settings of Trainer by family, the comparisons, and profiles."""
    for family in () if tiny else FAMILIES:
        yield Part("settings", family, partial(_tuned, family))
    for number, shape in enumerate(shapes(tiny)):
        yield Part("speed", _file_name(shape.name), partial(_compared, shape))
        if not number:
            yield Part("speed", UNCOMPILED, partial(_uncompiled, cells(shape)[0]))
    for blocks in () if tiny else _MORE:
        yield Part("speed", f"{blocks}-blocks", partial(_more_blocks, blocks))
    for cell in profiled_cells(tiny):
        yield Part("profile", _file_name(cell.name), partial(_profiled, cell))


def _file_name(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _tuned(family: str, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Try what else may be fastest on a GPU: SDPA with its flash kernels and fused AdamW are the defaults."""
    cell = Cell(shape_of(512, family), "bf16", Training.ADAPTATION)
    choices = [Settings(compiled=mode, loader_workers=workers) for mode in (False, True) for workers in (0, 4)]
    trials = [trial for group in _at_once(choices) for trial in tried_together(cell, group)]
    return {"trials": trials, "chosen": fastest(trials)}


def _at_once(items: list[Item]) -> list[list[Item]]:
    """All together where a GPU has memory for them, 57 GiB of tensors over all sides of a shape; else one by one."""
    if torch.cuda.is_available() and torch.cuda.get_device_properties(device()).total_memory < _ROOMY_BYTES:
        return [[item] for item in items]
    return [items]


def _compared(shape: Shape, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Compare what an earlier run has not; a cell that failed is tried again by the next one.

    Raises:
        SystemExit: some failed.
    """
    earlier = given.record("speed", _file_name(shape.name)).get("found", {})
    chosen = given.record("settings", shape.family).get("found", {}).get("chosen", Settings().plain())
    settings = earlier.get("settings", chosen)
    kept = {Cell.of(each["cell"]): each for each in earlier.get("cells", ()) if "error" not in each}
    rounds, side, round_s = (1, 64, 0.05) if given.tiny else (_ROUNDS, 8192, 1.0)
    for group in _at_once([cell for cell in cells(shape) if cell not in kept]):
        for cell, each in compared_together(group, Settings(**settings), rounds, (side, side, side), round_s):
            kept[cell] = {"cell": cell.plain(), "flops": cell.flops, "least_s": _least_s(cell, given), **each}
            keep({"settings": settings, "cells": [*kept.values()]})
    if failed := [cell.name for cell, each in kept.items() if "error" in each]:
        raise SystemExit(f"failed: {'; '.join(failed)}")
    return {"settings": settings, "cells": [*kept.values()]}


def _uncompiled(cell: Cell, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Our own steps without `torch.compile`: what it brings is the difference from the comparison's."""
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    return {"cells": [_alone(cell)]}


def _more_blocks(blocks: int, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Our own steps over more blocks at a time, which keep a GPU busy where 32 do not."""
    return {"cells": [_alone(Cell(shape_of(512)._replace(blocks=blocks), "bf16", Training.MINI))]}


def _alone(cell: Cell) -> dict[str, Any]:
    with Side(cell) as side:
        side.train(_WARM_UP)
        timed = min((side.train(_PROFILED) for _ in range(_ROUNDS)), key=lambda each: each.step_s)
    return {"cell": cell.plain(), "flops": cell.flops, "step_s": timed.step_s, "peak_bytes": timed.peak_bytes}


def _least_s(cell: Cell, given: Given) -> float | None:
    """Least seconds of an update at the rates that the device was measured to reach, if it was."""
    from benchmarks.gpu.roofline import Rates, cell_least_s

    found = given.record("environment", "device").get("found", {})
    if "copied_bytes_s" not in found:
        return None
    return cell_least_s(cell, Rates(max(found["flop_s"]["bf16"].values()), found["copied_bytes_s"]))


class _ProfiledOrders(Orders):
    """Orders some steps to warm up, some to be timed, and some to be profiled."""

    def __init__(self) -> None:
        self._left = [_WARM_UP, _TIMED, _PROFILED, 0]
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self.profile = torch.profiler.profile(activities=kinds)
        self.steps_s: list[float] = []
        """Seconds of a step of each order."""
        self._began = 0.0
        self._steps = 0

    def wait(self) -> int:
        """Steps to train now; 0: no more."""
        self._steps = self._left.pop(0)
        if len(self._left) == 1:
            self.profile.start()
        self._began = time.perf_counter()
        return self._steps

    def done(self, waiting_s: float | None = None) -> None:
        """The steps were trained."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps_s.append((time.perf_counter() - self._began) / self._steps)
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
        on_gpu = [one for one in averages if one.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [one for one in on_gpu if not one.is_user_annotation]  # which last as long as kernels within them
        times = [(one.self_device_time_total, one.count, one.key) for one in kernels]
    else:
        times = [(one.self_cpu_time_total, one.count, one.key) for one in averages]
    us_to_ms = 1e3 * _PROFILED
    _, step_s, profiled_s = orders.steps_s
    return {
        "cell": cell.plain(),
        "step_ms": 1e3 * step_s,
        "profiled_ms": 1e3 * profiled_s,
        "kernels_ms": sum(us for us, _, _ in times) / us_to_ms,
        "kernels": [
            {"name": name, "ms": us / us_to_ms, "calls": calls / _PROFILED}
            for us, calls, name in sorted(times, reverse=True)[:_KERNELS]
        ],
    }


def hours(speed: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """GPU hours of a language at the paper's tokens by shape and training, at the rates that were measured.

    Progressive depth spends a third of its tokens at 4, at 8 and at 12 layers; a token's seconds at 8 layers are taken
    to lie halfway between those at 4 and at 12.

    Args:
        speed: what the parts of the stage of that name have found.
    """
    found: dict[str, dict[str, float]] = {}
    for each in (each for name, part in speed.items() if name != UNCOMPILED for each in part["cells"]):
        cell = Cell.of(each["cell"])
        if cell.training is Training.FINETUNING or "error" in each:
            continue
        alone = "lingraft" not in each
        training = f"{cell.training}, {cell.shape.blocks} blocks at a time" if alone else str(cell.training)
        step_s = each["step_s"] if alone else each["lingraft"]["step_s"]
        found.setdefault(cell.shape.name, {})[training] = PAPER_TOKENS / cell.shape.tokens_per_step * step_s / 3600
    for taken_h in found.values():
        if {Training.MINI, Training.ADAPTATION} <= taken_h.keys():
            taken_h[f"progressive adaptation over {MINI}, {(MINI + DEEP) // 2}, {DEEP} layers"] = (
                taken_h[Training.MINI] + taken_h[Training.ADAPTATION]
            ) / 2
    return found
