"""Trainings without a stage around them."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from torch import nn

from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.loop import Plan, Stream, TrainingLoop
from lingraft.training.schedule import Schedule, TrainingMetrics
from lingraft.training.training_state import TrainingState


def planned(**changes: Any) -> Schedule:
    """A schedule without weight decay that logs every four steps; say how many steps there are, and which warm up."""
    plain = {"learning_rate": 0.1, "weight_decay": 0.0, "clip_norm": 1.0, "log_every_steps": 4, "skipped_steps": 0}
    return Schedule(**(plain | {"tokens_per_step": 64, "flops_per_step": 1e6} | changes))


def train(
    loss_of: nn.Module,
    parameters: Sequence[nn.Parameter],
    stream: Stream,
    schedule: Schedule,
    state: TrainingState | None = None,
    checkpointer: CheckpointManager | None = None,
) -> Iterator[TrainingMetrics]:
    """Train in float32."""
    loop = TrainingLoop(
        parameters=parameters,
        stream=stream,
        autocast=nullcontext,
        checkpointer=checkpointer,
        state=state or TrainingState(),
    )
    return loop.run(Plan(loss_of, schedule))
