"""One run of THE loop for a stage: its plan, loss, batches and number format, and the record that it leaves.

Masked language modelling and finetuning differ in the loss and the batches; what is trained is the stage's choice.
"""

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.artifacts.artifact import Draft
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.config.tasks import Finetuning
from lingraft.config.training import OptimizerSettings, Training
from lingraft.console import say
from lingraft.data.shards import Blocks
from lingraft.model.encoder import Encoder
from lingraft.model.flops import finetuning_update_shape, flops_per_update, step_flops
from lingraft.model.kernels.memory import reuse_freed_memory
from lingraft.tasks.kinds import Prepared, TaskKind
from lingraft.training import masked_lm, precision
from lingraft.training.batches import block_stream, steps_for_epochs, task_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.freezing import freeze_except, trainable_parameters
from lingraft.training.learning_curve import write_curve
from lingraft.training.loop import Stream
from lingraft.training.phases import TrainingPhase, max_steps, train_in_phases
from lingraft.training.progress import show_progress
from lingraft.training.schedule import MetricsCallback, Schedule, TrainingMetrics
from lingraft.training.state import TrainingState

_ANNOUNCED: set[str] = set()
"""Number formats that this process has said it trains in."""
_PLANNED = (
    "learning_rate",
    "weight_decay",
    "clip_norm",
    "log_every_steps",
    "skipped_steps",
    "judge_every_steps",
    "patience",
    "flop_budget",
)


@dataclass(frozen=True)
class TrainingRun:
    """A training that has not begun yet, or goes on from a checkpoint."""

    points: Generator[TrainingMetrics, None, None]
    """Trains as it is asked; to be closed, so that it sees no longer to signals."""
    steps: int
    """With which it ends, unless the dev score or the dev loss ends it before."""
    number_format: str
    state: TrainingState
    """Where training stands; it moves on."""
    earlier: tuple[TrainingMetrics, ...]
    """The learning curve up to the checkpoint."""
    checkpointer: CheckpointManager | None

    def watched(self, title: str, watch: MetricsCallback) -> list[TrainingMetrics]:
        """Train to the end under a progress bar, and return the learning curve, from its very beginning.

        Args:
            title: of the progress bar.
            watch: is told every point, earlier ones first.

        Raises:
            TrainingError: too many losses or gradients are not finite.
            Interruption: the process was asked to stop, and a checkpoint was written.
        """
        history = [*self.earlier]
        with closing(self.points), closing(show_progress(self.points, self.steps, title)) as points:
            for point in self.earlier:
                watch(point)
            for point in points:
                watch(point)
                history.append(point)
        return history

    def forget(self) -> None:
        """Remove the checkpoints, when what was trained is on disk."""
        if self.checkpointer:
            self.checkpointer.remove()


def masked_lm_run(
    recipe: Recipe,
    step: Step,
    encoder: Encoder,
    blocks: Blocks,
    settings: Training,
    stops: Sequence[int] = (),
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
) -> TrainingRun:
    """Masked language modelling with the step's heads; what the step does not train is frozen here.

    Args:
        recipe: number format and threads.
        step: what is trained, over which layers, with which heads.
        encoder: the model of the step, with as many layers.
        blocks: to train on.
        settings: length and schedule.
        stops: further steps after which the run yields a point.
        checkpointer: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.

    Raises:
        RecipeError: the batch cannot be divided over the processes.
    """
    phase = masked_lm_phase(recipe, step, encoder, settings, stops)
    return phased_run(recipe, [phase], trainable_parameters(step, encoder), blocks, settings, checkpointer, judge)


def masked_lm_phase(
    recipe: Recipe,
    step: Step,
    encoder: Encoder,
    settings: Training,
    stops: Sequence[int] = (),
    window: int | None = None,
    **changes: Any,
) -> TrainingPhase:
    """Loss and plan of masked language modelling over one model; what the step does not train is frozen here.

    Args:
        recipe: with the shape that FLOPs are counted for.
        step: what is trained, over which layers, with which heads.
        encoder: the model of the step, with as many layers.
        settings: length and schedule.
        stops: further steps after which there is a point.
        window: tokens of a window that attention stays within; absent: a block's.
        changes: to the plan, where it is one of several.
    """
    freeze_except(encoder, trainable_parameters(step, encoder.to(precision.device())))
    encoder.recompute = settings.recompute
    plan = Schedule(
        steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        **_schedule_settings(settings),
        seed=settings.seed,
        tokens_per_step=settings.batch_blocks * recipe.encoder.block_tokens,
        flops_per_step=step_flops(recipe, step, settings, len(encoder.vocabulary), window),
        stops=frozenset(stops),
        **changes,
    )
    return TrainingPhase(masked_lm.MaskedLmLoss(encoder, step.heads, settings.mask_rate, settings.seed, window), plan)


def phased_run(
    recipe: Recipe,
    phases: Sequence[TrainingPhase],
    trained: Sequence[nn.Parameter],
    blocks: Blocks,
    settings: Training,
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
    dev_loss: Callable[[], float] | None = None,
) -> TrainingRun:
    """Masked language modelling in phases, which train the same parameters.

    Args:
        recipe: number format and threads.
        phases: in their order.
        trained: all that trains.
        blocks: to train on.
        settings: length and schedule.
        checkpointer: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.
        dev_loss: where it says when a phase ends.
    """
    at_once = settings.micro_batch_blocks
    stream = block_stream(blocks, settings.batch_blocks, at_once, settings.mask_rate, settings.seed)
    return _make_run(recipe, phases, trained, stream, checkpointer, judge, dev_loss)


def task_run(
    recipe: Recipe,
    step: Step,
    net: nn.Module,
    kind: TaskKind,
    data: Prepared,
    settings: Finetuning,
    seed: int,
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
) -> TrainingRun:
    """Finetuning of the body and the task's head; the vocabulary and the MLM heads stay as they are.

    Args:
        recipe: number format and threads.
        step: what is trained, over how many layers.
        net: the body under the task's head.
        kind: of the task.
        data: to train on.
        settings: length and schedule.
        seed: of order and dropout.
        checkpointer: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.
    """
    trained = trainable_parameters(step, net.to(precision.device()))
    freeze_except(net, trained)
    encoder: Any = net.encoder
    encoder.recompute = settings.recompute
    steps, shape = steps_for_epochs(data, settings.batch_examples, settings.epochs), recipe.encoder
    plan = Schedule(
        steps=steps,
        warmup_steps=round(settings.warmup_ratio * steps),
        **_schedule_settings(settings),
        seed=seed,
        tokens_per_step=settings.batch_examples * shape.block_tokens,
        flops_per_step=flops_per_update(step, finetuning_update_shape(recipe, step, settings)),
    )
    at_once = settings.micro_batch_examples
    stream = task_stream(data, settings.batch_examples, at_once, seed, settings.group_by_length)
    return _make_run(recipe, [TrainingPhase(_TaskLoss(net, kind), plan)], trained, stream, checkpointer, judge)


class _TaskLoss(nn.Module):
    """The loss of a batch of examples."""

    def __init__(self, net: nn.Module, kind: TaskKind) -> None:
        super().__init__()
        self.net, self._kind = net, kind

    def forward(self, batch: Any) -> Tensor:
        return self._kind.loss(self.net, batch)


def _schedule_settings(settings: OptimizerSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in _PLANNED}


def _make_run(
    recipe: Recipe,
    phases: Sequence[TrainingPhase],
    trained: Sequence[nn.Parameter],
    stream: Stream[Any],
    checkpointer: CheckpointManager | None,
    judge: Callable[[], float] | None,
    dev_loss: Callable[[], float] | None = None,
) -> TrainingRun:
    """What goes on from a checkpoint keeps its number format, which a measurement may have chosen."""
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    if precision.device().type == "cpu":
        reuse_freed_memory()
    for phase in phases:
        phase.loss_of.train()
    state, steps = checkpointer.newest() if checkpointer else None, max_steps(phases)
    if checkpointer and state:
        number_format = checkpointer.noted["precision"]
        say(f"going on after step {state.step} of {steps}")
    else:
        state = TrainingState()
        probed = itertools.cycle(batch for _, batch in stream(1))
        shallowest = phases[0].loss_of
        number_format, reason = precision.choose_precision(
            recipe.precision, lambda: shallowest(next(probed)), list(trained)
        )
        # Each process has measured, at the same time; the leader's choice is everybody's.
        number_format = "bf16" if process_group.broadcast(number_format == "bf16") else "fp32"
        if number_format not in _ANNOUNCED:
            say(reason)
            _ANNOUNCED.add(number_format)
    if checkpointer:
        checkpointer.noted = {"precision": number_format}
    earlier = tuple(state.points)
    precise = precision.autocast(number_format)
    points = train_in_phases(phases, trained, stream, precise, state, checkpointer, judge, dev_loss)
    return TrainingRun(points, steps, number_format, state, earlier, checkpointer)


def record_training(
    draft: Draft,
    language: str,
    data_hashes: dict[str, str],
    settings: Training | Finetuning,
    history: Sequence[TrainingMetrics],
    run: TrainingRun,
) -> None:
    """Put the learning curve into an artifact, and into its manifest what was trained, on what, and at what cost."""
    write_curve(draft, history)
    record: dict[str, Any] = {"precision": run.number_format, "device": precision.device().type}
    record |= {"processes": process_group.world_size(), "left_out_steps": run.state.left_out}
    if run.state.best.score is not None:
        record |= {"best_step": run.state.best.step, "best_dev_score": run.state.best.score}
    draft.facts = {
        "language": language,
        "data_hashes": data_hashes,
        "recipe": settings.model_dump(mode="json"),
        "details": {},
        "record": record,
    }
    if history:
        draft.facts["cost"] = history[-1].cost
