"""Our side: the stage's own run of THE loop, with its data, optimizer and checks, stopped and timed between steps."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.cells import LABELS, LEARNING_RATE, MASK_RATE, Cell
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
from lingraft.training.loop import MicroBatches, Stream
from lingraft.training.run import TrainingRun, masked_lm_plan, task_plan, training_run
from lingraft.training.schedule import ignore_metrics

_RECIPE = Path("recipes/base.toml")
_ENDLESS = 1_000_000
_PACE = {
    "log_every_steps": _ENDLESS,
    "learning_rate": LEARNING_RATE,
}


class OrdersEndError(Exception):
    """There is nothing more to train."""


def serve(cell: Cell, blocks: Blocks, orders: Orders) -> None:
    """Train as told, to the end of the orders."""
    run = _run(cell, blocks, lambda stream: _AsTold(stream, orders))
    try:
        with run.watched("speed", ignore_metrics) as report:
            for point in run.points:
                report(point)
    except OrdersEndError:
        return


class _AsTold:
    """Stream of batches for as many steps at a time as are ordered; between orders the loop stands still."""

    def __init__(self, stream: Stream, orders: Orders) -> None:
        self._stream, self._orders = stream, orders
        self._left = 0
        self._waits_s: list[float] = []
        """For each batch since the last order."""
        self._is_training = False

    def __call__(self, step: int) -> MicroBatches:
        if not self._is_training:  # the run looks at the first batch to choose a number format
            self._is_training = True
            return self._stream(step)
        if not self._left:
            self._next_order()
        asked_at = time.perf_counter()
        batch = self._stream(step)
        self._waits_s.append(time.perf_counter() - asked_at)
        self._left -= 1
        return batch

    def _next_order(self) -> None:
        if self._waits_s:
            self._orders.done(statistics.fmean(self._waits_s))
            self._waits_s.clear()
        self._left = self._orders.wait()
        if not self._left:
            raise OrdersEndError


def _run(cell: Cell, blocks: Blocks, told: Callable[[Stream], Stream]) -> TrainingRun:
    """The cell's training from the very beginning, as its stage would set it up."""
    recipe, step = _recipe(cell), cell.training.step
    primary = Encoder(recipe.encoder, cell.shape.vocabulary)
    if step.stage is Stage.FINETUNE:
        return _finetuning(recipe, cell, primary, blocks, told)
    fresh = fresh_layers(primary.shape, step.fresh_layers)
    model = mini_model(primary, step.layers - step.fresh_layers, fresh)
    parts = {Stage.PRETRAIN: model, Stage.BUILD_MINI: fresh, Stage.ADAPT: model.vocabulary}
    trained = freeze_except(model, parts[step.stage].parameters())
    plan = masked_lm_plan(recipe, step, model, recipe.pretraining)
    return training_run(recipe, plan, trained, told(masked_lm_stream(blocks, recipe.pretraining)))


def _finetuning(
    recipe: Recipe, cell: Cell, primary: Encoder, blocks: Blocks, told: Callable[[Stream], Stream]
) -> TrainingRun:
    """Blocks in the place of pairs, as long as they get."""
    rows = blocks.all().tolist()
    data = in_place_of_pairs(rows, torch.arange(len(rows)) % len(LABELS))
    training = recipe.tasks[0].finetuning.model_copy(
        update={"epochs": _ENDLESS, "batch_examples": cell.shape.blocks, **_PACE}
    )
    kind = Classification()
    net = kind.net(primary, LABELS)
    trained = freeze_except(net, body_parameters(net))
    plan = task_plan(recipe=recipe, step=cell.training.step, net=net, kind=kind, data=data, settings=training, seed=1)
    stream = task_stream(data, training.batch_examples, 1, training.group_by_length)
    return training_run(recipe, plan, trained, told(stream))


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
