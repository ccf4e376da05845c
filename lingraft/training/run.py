"""One run of the training loop for a stage: its plan, batches, number format, and the record that it leaves."""

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lingraft import ranks
from lingraft.artifacts.artifact import Draft
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.config.tasks import Finetuning
from lingraft.config.training import Training
from lingraft.console import say
from lingraft.model.encoder import Encoder
from lingraft.model.flops import finetuning_update_shape, flops_per_update, step_flops
from lingraft.tasks.task_kind import Prepared, TaskKind
from lingraft.training import precision
from lingraft.training.batches import steps_for_epochs, to_device
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.loop import Plan, Stream, TrainingLoop
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.memory import reuse_freed_memory
from lingraft.training.progress import training_progress
from lingraft.training.schedule import MetricsCallback, Schedule, TrainingMetrics, write_curve
from lingraft.training.training_state import TrainingState

_ANNOUNCED: set[str] = set()
"""Number formats that this process has said it trains in."""
_WARMUP_SHARE = 0.06
"""Share of a finetuning's updates that warm up."""


@dataclass(frozen=True)
class TrainingRun:
    """A training that has not begun yet, or goes on from a checkpoint."""

    points: Generator[TrainingMetrics, None, None]
    """Trains as points are taken; close it, so that signals get their handlers back."""
    steps: int
    """Steps of the run."""
    number_format: str
    state: TrainingState
    """State of the training, which moves on; its points are the learning curve from the very beginning."""
    earlier: tuple[TrainingMetrics, ...]
    """Learning curve up to the checkpoint."""
    checkpointer: CheckpointManager | None

    @contextmanager
    def watched(self, title: str, watch: MetricsCallback) -> Iterator[MetricsCallback]:
        """Watch the points up to the checkpoint, then yield a function that shows and watches a new one.

        At the end the points are closed.

        Args:
            title: title of the progress bar.
            watch: called with every point, earlier ones first.
        """
        with closing(self.points), training_progress(self.steps, title) as show:
            for point in self.earlier:
                watch(point)

            def report(point: TrainingMetrics) -> None:
                show(point)
                watch(point)

            yield report


def masked_lm_plan(recipe: Recipe, step: Step, encoder: Encoder, settings: Training, stops: Sequence[int] = ()) -> Plan:
    """Loss and schedule of masked language modelling; `stops` are further steps with a point of the learning curve."""
    encoder.to(precision.device()).train()
    schedule = Schedule(
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        log_every_steps=settings.log_every_steps,
        seed=settings.seed,
        tokens_per_step=settings.batch_blocks * recipe.encoder.block_tokens,
        flops_per_step=step_flops(recipe, step, settings, len(encoder.vocabulary)),
        stops=frozenset(stops),
    )
    encoder.fused = precision.compiles(schedule.steps * schedule.flops_per_step)
    return Plan(MaskedLmLoss(encoder, step.heads, settings.mask_rate, settings.seed), schedule)


def task_plan(
    recipe: Recipe, step: Step, net: nn.Module, kind: TaskKind, data: Prepared, settings: Finetuning, seed: int
) -> Plan:
    """Loss and schedule of a task's finetuning."""
    net.to(precision.device()).train()
    steps = steps_for_epochs(data, settings.batch_examples, settings.epochs)
    schedule = Schedule(
        steps=steps,
        learning_rate=settings.learning_rate,
        warmup_steps=round(_WARMUP_SHARE * steps),
        log_every_steps=settings.log_every_steps,
        seed=seed,
        tokens_per_step=settings.batch_examples * recipe.encoder.block_tokens,
        flops_per_step=flops_per_update(step, finetuning_update_shape(recipe, step, settings)),
    )
    return Plan(_TaskLoss(net, kind), schedule)


class _TaskLoss(nn.Module):
    def __init__(self, net: Any, kind: TaskKind) -> None:
        super().__init__()
        self.net = net
        self._kind = kind

    def forward(self, batch: Any) -> Tensor:
        return self._kind.loss(self.net, to_device(batch, self.net.encoder.device))


def training_run(
    recipe: Recipe,
    plan: Plan,
    trained: Sequence[nn.Parameter],
    stream: Stream,
    checkpointer: CheckpointManager | None = None,
    sparse_tables: Sequence[nn.Parameter] = (),
) -> TrainingRun:
    """Return a run of the training loop, not yet begun, or that goes on from the newest checkpoint.

    The caller has frozen everything but `trained`, of which Adam updates `sparse_tables` by rows, and AdamW the others.
    """
    if precision.device().type == "cpu":
        reuse_freed_memory()
    state, steps = checkpointer.load_newest() if checkpointer else None, plan.schedule.steps
    if checkpointer and state:
        number_format = checkpointer.notes["precision"]
        say(f"going on after step {state.step} of {steps}")
    else:
        state = TrainingState()
        number_format = _choose_number_format(recipe, plan.loss_of, trained, stream)
    if checkpointer:
        checkpointer.notes = {"precision": number_format}
    loop = TrainingLoop(
        parameters=trained,
        stream=stream,
        autocast=precision.autocast(number_format),
        checkpointer=checkpointer,
        state=state,
        sparse_tables=sparse_tables,
    )
    return TrainingRun(
        points=loop.run(plan),
        steps=steps,
        number_format=number_format,
        state=state,
        earlier=tuple(state.points),
        checkpointer=checkpointer,
    )


def _choose_number_format(
    recipe: Recipe, loss_of: nn.Module, trained: Sequence[nn.Parameter], stream: Stream
) -> precision.NumberFormat:
    """Return the recipe's number format, or the faster one on this machine; rank zero's choice is everybody's."""
    batches = itertools.cycle(batch for _, batch in stream(1))
    chosen, reason = precision.choose_precision(recipe.precision, lambda: loss_of(next(batches)), list(trained))
    chosen = "bf16" if process_group.broadcast(chosen == "bf16") else "fp32"
    if chosen not in _ANNOUNCED:
        say(reason)
        _ANNOUNCED.add(chosen)
    return chosen


def record_training(
    draft: Draft, language: str, data_hashes: dict[str, str], settings: Training | Finetuning, run: TrainingRun
) -> None:
    """Put the learning curve into an artifact, and into its manifest what was trained, on what, and at what cost."""
    state = run.state
    write_curve(draft, state.points)
    record: dict[str, Any] = {
        "precision": run.number_format,
        "device": precision.device().type,
        "processes": ranks.world_size(),
        "left_out_steps": state.skipped,
    }
    draft.facts = {
        "language": language,
        "data_hashes": data_hashes,
        "recipe": settings.model_dump(mode="json"),
        "details": {},
        "record": record,
    }
    if state.points:
        draft.facts["cost"] = state.points[-1].cost
