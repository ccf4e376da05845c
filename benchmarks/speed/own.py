"""Our side: the stage's own run of THE loop, with its data, optimizer and checks, stopped and timed between steps."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

import lingraft.training.loop
from benchmarks.speed.cells import CLIP_NORM, LABELS, LEARNING_RATE, MASK_RATE, WEIGHT_DECAY, Cell
from benchmarks.speed.orders import Orders
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder, freeze_except, fresh_layers, mini_model
from lingraft.stages.finetune import body_parameters
from lingraft.tasks.classification import Classification, Classified
from lingraft.tasks.pairs import Encoded
from lingraft.training.batches import masked_lm_stream, task_stream
from lingraft.training.prefetch import Prefetcher, prefetch
from lingraft.training.run import TrainingRun, masked_lm_phase, task_phase, training_run
from lingraft.training.schedule import ignore_metrics

_RECIPE = Path("recipes/base.toml")
_ENDLESS = 1_000_000
_PACE = {
    "log_every_steps": _ENDLESS,
    "learning_rate": LEARNING_RATE,
    "weight_decay": WEIGHT_DECAY,
    "clip_norm": CLIP_NORM,
}
_READY = 2
"""Batches that were made while the other side trained: nobody waits for them."""

Item = TypeVar("Item")


class OrdersEndError(Exception):
    """There is nothing more to train."""


def serve(cell: Cell, blocks: Blocks, orders: Orders) -> None:
    """Train as told, to the end of the orders."""

    def timed(batches: Iterable[Item]) -> _AsTold[Item]:
        return _AsTold(prefetch(batches), orders)

    # The loop asks for a step's batch when it has done with the step before.
    lingraft.training.loop.prefetch = timed
    run = _run(cell, blocks)
    try:
        with run.watched("speed", ignore_metrics) as report:
            for point in run.points:
                report(point)
    except OrdersEndError:
        return


class _AsTold(Iterator[Item]):
    """Batches for as many steps at a time as are ordered; between orders the loop stands still."""

    def __init__(self, batches: Prefetcher[Item], orders: Orders) -> None:
        self._batches, self._orders = batches, orders
        self._left = 0
        self._waits_s: list[float] = []
        """For each batch since the last order."""
        self._waited_s = 0.0
        """For the next one so far."""

    def wait(self, unless: Callable[[], object]) -> None:
        """Wait for a batch where the loop may be asked to stop."""
        asked_at = time.perf_counter()
        self._batches.wait(unless)
        self._waited_s += time.perf_counter() - asked_at

    def __next__(self) -> Item:
        if not self._left:
            self._next_order()
        asked_at = time.perf_counter()
        batch = next(self._batches)
        self._waits_s.append(self._waited_s + time.perf_counter() - asked_at)
        self._waited_s = 0.0
        self._left -= 1
        return batch

    def _next_order(self) -> None:
        if self._waits_s:
            later_s = self._waits_s[_READY:]
            self._orders.done(statistics.fmean(later_s) if later_s else None)
            self._waits_s.clear()
        self._left = self._orders.wait()
        if not self._left:
            raise OrdersEndError


def _run(cell: Cell, blocks: Blocks) -> TrainingRun:
    """The cell's training from the very beginning, as its stage would set it up."""
    recipe, step = _recipe(cell), cell.training.step
    primary = Encoder(recipe.encoder, cell.shape.vocabulary)
    if step.stage is Stage.FINETUNE:
        return _finetuning(recipe, cell, primary, blocks)
    fresh = fresh_layers(primary.shape, step.fresh_layers)
    model = mini_model(primary, step.layers - step.fresh_layers, fresh)
    parts = {Stage.PRETRAIN: model, Stage.BUILD_MINI: fresh, Stage.ADAPT: model.vocabulary}
    trained = freeze_except(model, parts[step.stage].parameters())
    phase = masked_lm_phase(recipe, step, model, recipe.pretraining)
    return training_run(recipe, [phase], trained, masked_lm_stream(blocks, recipe.pretraining))


def _finetuning(recipe: Recipe, cell: Cell, primary: Encoder, blocks: Blocks) -> TrainingRun:
    """Blocks in the place of pairs, as long as they get."""
    rows = blocks.all().tolist()
    data = in_place_of_pairs(rows, torch.arange(len(rows)) % len(LABELS))
    training = recipe.tasks[0].finetuning.model_copy(
        update={"epochs": _ENDLESS, "batch_examples": cell.shape.blocks, "micro_batch_examples": None, **_PACE}
    )
    kind = Classification()
    net = kind.net(primary, LABELS)
    trained = freeze_except(net, body_parameters(net))
    phase = task_phase(recipe=recipe, step=cell.training.step, net=net, kind=kind, data=data, settings=training, seed=1)
    stream = task_stream(data, training.batch_examples, training.micro_batch_examples, 1, training.group_by_length)
    return training_run(recipe, [phase], trained, stream)


def in_place_of_pairs(rows: list[list[int]], labels_N: Tensor) -> Classified:
    """Rows of tokens as if they were pairs that had been tokenized."""
    return Classified(Encoded(rows, None, [len(row) for row in rows]), labels_N, DEFAULT_SPECIAL_IDS.pad)


def _recipe(cell: Cell) -> Recipe:
    """The base recipe with the cell's shape, number format and batch."""
    shape = cell.shape
    recipe = Recipe.load(_RECIPE)
    training = recipe.pretraining.model_copy(
        update={
            "steps": _ENDLESS,
            "batch_blocks": shape.blocks,
            "micro_batch_blocks": None,
            "mask_rate": MASK_RATE,
            **_PACE,
        }
    )
    return recipe.model_copy(update={"precision": cell.format, "encoder": shape.encoder, "pretraining": training})
