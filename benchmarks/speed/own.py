"""Our side: the stage's own run of THE loop, with its data, optimizer and checks, stopped and timed between steps."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import lingraft.train
from benchmarks.speed.cells import CLIP_NORM, DEEP, LEARNING_RATE, MASK_RATE, MINI, WEIGHT_DECAY, Cell, Training
from benchmarks.speed.orders import Orders
from lingraft.ahead import Ahead, ahead
from lingraft.config import Recipe
from lingraft.encoder import Encoder, mini_model
from lingraft.model_config import EncoderShape
from lingraft.runs import masked_lm_run
from lingraft.shards import Blocks
from lingraft.systems import Stage, Step, Trained

_RECIPE = Path("recipes/base.toml")
_ENDLESS = 1_000_000
_READY = 2
"""Batches that were made while the other side trained: nobody waits for them."""

Item = TypeVar("Item")


class OrdersEndError(Exception):
    """There is nothing more to train."""


def serve(cell: Cell, blocks: Blocks, orders: Orders) -> None:
    """Train as told, to the end of the orders."""
    recipe = _recipe(cell)
    encoder = mini_model(Encoder(recipe.encoder, cell.shape.vocabulary), cell.training.layers)
    pretrains = cell.training is Training.PRETRAINING
    step = Step(
        Stage.PRETRAIN if pretrains else Stage.ADAPT,
        Trained.EVERYTHING if pretrains else Trained.EMBEDDINGS,
        cell.training.layers,
        heads=(cell.training.layers,),
    )

    def timed(batches: Iterable[Item]) -> _AsTold[Item]:
        return _AsTold(ahead(batches), orders)

    # The loop asks for a step's batch when it has done with the step before.
    lingraft.train.ahead = timed
    run = masked_lm_run(recipe, step, encoder, blocks, recipe.pretraining)
    try:
        run.watched("speed", lambda _: None)
    except OrdersEndError:
        return


class _AsTold(Iterator[Item]):
    """Batches for as many steps at a time as are ordered; between orders the loop stands still."""

    def __init__(self, batches: Ahead[Item], orders: Orders) -> None:
        self._batches, self._orders = batches, orders
        self._left = 0
        self._waits_s: list[float] = []
        """For each batch since the last order."""
        self._waited_s = 0.0
        """For the next one so far."""

    def wait(self, unless: Callable[[], object]) -> None:
        """As the loop does where it may be asked to stop."""
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


def _recipe(cell: Cell) -> Recipe:
    """The base recipe with the cell's shape, number format and batch."""
    shape = cell.shape
    recipe = Recipe.load(_RECIPE)
    training = recipe.pretraining.model_copy(
        update={
            "steps": _ENDLESS,
            "log_every_steps": _ENDLESS,
            "batch_blocks": shape.blocks,
            "micro_batch_blocks": None,
            "learning_rate": LEARNING_RATE,
            "weight_decay": WEIGHT_DECAY,
            "clip_norm": CLIP_NORM,
            "mask_rate": MASK_RATE,
        }
    )
    encoder = EncoderShape(
        width=shape.width,
        layers=DEEP,
        attention_heads=shape.attention_heads,
        mlm_heads=(MINI, DEEP),
        block_tokens=shape.tokens,
    )
    return recipe.model_copy(update={"precision": cell.format, "encoder": encoder, "pretraining": training})
