"""Trainings in phases, each over a model of its own: THE loop once a phase, with one state and one schedule for all.

To begin a phase is to go on with a training under another loss: weights, moments, step and curve are handed over as
a checkpoint would hand them over. Progressive adaptations have several phases, as has pretraining that begins within
windows; all other trainings have one.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.loop import Stream, train
from lingraft.training.precision import AutocastFactory
from lingraft.training.schedule import TRAINING_START, Schedule, TrainingMetrics
from lingraft.training.state import TrainingState


@dataclass(frozen=True)
class TrainingPhase:
    """Training over one model."""

    loss_of: nn.Module
    plan: Schedule
    """As if it were the first phase; where it begins is known when the one before it has ended."""

    def planned(self, state: TrainingState) -> Schedule:
        """The plan of the phase that a training is in."""
        return replace(self.plan, begun=state.begun[-1]) if state.begun else self.plan


def train_in_phases(
    phases: Sequence[TrainingPhase],
    parameters: Sequence[nn.Parameter],
    stream: Stream[Any],
    precise: AutocastFactory,
    state: TrainingState,
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
    dev_loss: Callable[[], float] | None = None,
) -> Generator[TrainingMetrics, None, None]:
    """Train by one phase after another, as `lingraft.training.loop.train` does by each.

    A phase that there is no step left for is left out, and so are those after it.

    Args:
        phases: in their order; all but the last have plans that are not the last.
        parameters: what is trained, in all phases the same.
        stream: what to train on.
        precise: number format of the forward pass.
        state: where to go on from, in whichever phase that is.
        checkpointer: writes checkpoints on the way, if any are wanted.
        judge: the dev score, the higher the better.
        dev_loss: by which phases end whose plans have a plateau.

    Raises:
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
    """
    while True:
        phase = phases[len(state.begun)]
        plan = phase.planned(state)
        yield from train(phase.loss_of, parameters, stream, plan, precise, state, checkpointer, judge, dev_loss)
        if plan.is_last or state.stale(plan):
            break
        begun = plan.begun_after(state.step)
        if replace(phases[len(state.begun) + 1].plan, begun=begun).last_step == state.step:
            break
        state.begun.append(begun)
    state.best.put_back(parameters)


def max_steps(phases: Sequence[TrainingPhase]) -> int:
    """Steps of a training whose phases last as long as their plans let them, which are the most that it has."""
    begun = TRAINING_START
    for phase in phases:
        plan = replace(phase.plan, begun=begun)
        begun = plan.begun_after(plan.last_step)
    return begun.step
