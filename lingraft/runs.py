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

from lingraft import masked_lm, precision, processes
from lingraft.artifact import Draft
from lingraft.config import Recipe
from lingraft.cost.formulas import Work, flops_per_update
from lingraft.encoder import Encoder
from lingraft.history import write_curve
from lingraft.keeper import Keeper
from lingraft.kernels.heap import reuse_freed_memory
from lingraft.pace_config import Pace
from lingraft.plan import Plan, Progress
from lingraft.progress import say, shown
from lingraft.shards import Blocks
from lingraft.stream import block_stream, steps_of, task_stream
from lingraft.systems import Step, Trained
from lingraft.task_config import Finetuning
from lingraft.tasks.kinds import Prepared, TaskKind
from lingraft.train import Stream, train
from lingraft.training_config import Training
from lingraft.training_state import TrainingState

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
Watch = Callable[[Progress], None]
"""Is told every point of a learning curve, for example to record it."""


@dataclass(frozen=True)
class Run:
    """A training that has not begun yet, or goes on from a checkpoint."""

    points: Generator[Progress, None, None]
    """Trains as it is asked; to be closed, so that it sees no longer to signals."""
    plan: Plan
    number_format: str
    state: TrainingState
    """Where training stands; it moves on."""
    earlier: tuple[Progress, ...]
    """The learning curve up to the checkpoint."""
    keeper: Keeper | None

    def watched(self, title: str, watch: Watch) -> list[Progress]:
        """Train to the end under a progress bar, and return the learning curve, from its very beginning.

        Args:
            title: of the progress bar.
            watch: is told every point, earlier ones first.

        Raises:
            TrainingError: too many losses or gradients are not finite.
            Interruption: the process was asked to stop, and a checkpoint was written.
        """
        history = [*self.earlier]
        with closing(self.points), closing(shown(self.points, self.plan.last_step, title)) as points:
            for point in self.earlier:
                watch(point)
            for point in points:
                watch(point)
                history.append(point)
        return history

    def forget(self) -> None:
        """Remove the checkpoints, when what was trained is on disk."""
        if self.keeper:
            self.keeper.remove()


def step_flops(recipe: Recipe, step: Step, settings: Training, vocabulary: int) -> float:
    """FLOPs of an update of masked language modelling, by the paper's formulas."""
    shape, heads = recipe.encoder, len(step.heads)
    blocks = shape.block_tokens, settings.batch_blocks
    return flops_per_update(step, Work(step.layers, shape.width, vocabulary, *blocks, settings.mask_rate, heads))


def trained_by(step: Step, model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a step trains, of an encoder or of a task's net; all others are frozen.

    Positions and LayerNorms train with the body; the vocabulary does not, or the languages would no longer fit.
    """
    encoder: Any = getattr(model, "encoder", model)
    named = {
        Trained.EVERYTHING: encoder.parameters,
        Trained.FRESH_LAYERS: encoder.layers[len(encoder.layers) - step.fresh_layers :].parameters,
        Trained.EMBEDDINGS: encoder.vocabulary.parameters,
    }
    if step.trained is not Trained.BODY:
        return [*named[step.trained]()]
    fixed = {*encoder.vocabulary.parameters(), *encoder.heads.parameters()}
    return [parameter for parameter in model.parameters() if parameter not in fixed]


def masked_lm_run(
    recipe: Recipe,
    step: Step,
    encoder: Encoder,
    blocks: Blocks,
    settings: Training,
    stops: Sequence[int] = (),
    keeper: Keeper | None = None,
    judge: Callable[[], float] | None = None,
) -> Run:
    """Masked language modelling with the step's heads; what the step does not train is frozen here.

    Args:
        recipe: number format and threads.
        step: what is trained, over which layers, with which heads.
        encoder: the model of the step, with as many layers.
        blocks: to train on.
        settings: length and schedule.
        stops: further steps after which the run yields a point.
        keeper: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.

    Raises:
        RecipeError: the batch cannot be divided over the processes.
    """
    trained = trained_by(step, encoder.to(precision.device()))
    _train_only(encoder, trained)
    encoder.recompute = settings.recompute
    plan = Plan(
        steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        **_pace(settings),
        seed=settings.seed,
        tokens_per_step=settings.batch_blocks * blocks.block_tokens,
        flops_per_step=step_flops(recipe, step, settings, len(encoder.vocabulary)),
        stops=frozenset(stops),
    )
    at_once = settings.micro_batch_blocks
    stream = block_stream(blocks, settings.batch_blocks, at_once, settings.mask_rate, settings.seed)
    loss_of = masked_lm.MaskedLmLoss(encoder, step.heads, settings.mask_rate, settings.seed)
    return _run(recipe, loss_of, trained, stream, plan, keeper, judge)


def task_run(
    recipe: Recipe,
    step: Step,
    net: nn.Module,
    kind: TaskKind,
    data: Prepared,
    settings: Finetuning,
    seed: int,
    keeper: Keeper | None = None,
    judge: Callable[[], float] | None = None,
) -> Run:
    """Finetuning of the body and the task's head; the vocabulary and the MLM heads stay as they are.

    Args:
        recipe: number format and threads.
        step: what is trained, over how many layers.
        net: the body under the task's head.
        kind: of the task.
        data: to train on.
        settings: length and schedule.
        seed: of order and dropout.
        keeper: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.
    """
    trained = trained_by(step, net.to(precision.device()))
    _train_only(net, trained)
    encoder: Any = net.encoder
    encoder.recompute = settings.recompute
    steps, shape = steps_of(data, settings.batch_examples, settings.epochs), recipe.encoder
    work = Work(step.layers, shape.width, 0, shape.block_tokens, settings.batch_examples, mask_rate=0.0, heads=0)
    plan = Plan(
        steps=steps,
        warmup_steps=round(settings.warmup_ratio * steps),
        **_pace(settings),
        seed=seed,
        tokens_per_step=settings.batch_examples * shape.block_tokens,
        flops_per_step=flops_per_update(step, work),
    )
    stream = task_stream(data, settings.batch_examples, settings.micro_batch_examples, seed)
    return _run(recipe, _TaskLoss(net, kind), trained, stream, plan, keeper, judge)


class _TaskLoss(nn.Module):
    """The loss of a batch of examples."""

    def __init__(self, net: nn.Module, kind: TaskKind) -> None:
        super().__init__()
        self.net, self._kind = net, kind

    def forward(self, batch: Any) -> Tensor:
        return self._kind.loss(self.net, batch)


def _pace(settings: Pace) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in _PLANNED}


def _train_only(model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
    """Frozen parameters get no gradient, and what lies below all that trains is computed without autograd."""
    model.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)


def _run(
    recipe: Recipe,
    loss_of: nn.Module,
    trained: Sequence[nn.Parameter],
    stream: Stream[Any],
    plan: Plan,
    keeper: Keeper | None,
    judge: Callable[[], float] | None,
) -> Run:
    """What goes on from a checkpoint keeps its number format, which a measurement may have chosen."""
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    if precision.device().type == "cpu":
        reuse_freed_memory()
    loss_of.train()
    state = keeper.newest() if keeper else None
    if keeper and state:
        number_format, reason = keeper.noted["precision"], f"going on after step {state.step} of {plan.last_step}"
    else:
        state = TrainingState()
        probed = itertools.cycle(batch for _, batch in stream(1))
        number_format, reason = precision.choose(recipe.precision, lambda: loss_of(next(probed)), list(trained))
        # Each process has measured, at the same time; the leader's choice is everybody's.
        number_format = "bf16" if processes.leaders(number_format == "bf16") else "fp32"
    if keeper:
        keeper.noted = {"precision": number_format}
    say(reason)
    earlier = tuple(state.points)
    points = train(loss_of, trained, stream, plan, precision.precise(number_format), state, keeper, judge)
    return Run(points, plan, number_format, state, earlier, keeper)


def describe(
    draft: Draft,
    language: str,
    data_hashes: dict[str, str],
    settings: Training | Finetuning,
    history: Sequence[Progress],
    run: Run,
) -> None:
    """Put the learning curve into an artifact, and into its manifest what was trained, on what, and at what cost."""
    write_curve(draft.folder, history)
    details: dict[str, Any] = {"precision": run.number_format, "device": precision.device().type}
    details |= {"processes": processes.count(), "left_out_steps": run.state.left_out}
    if run.state.best.score is not None:
        details |= {"best_step": run.state.best.step, "best_dev_score": run.state.best.score}
    draft.facts = {
        "language": language,
        "data_hashes": data_hashes,
        "recipe": settings.model_dump(mode="json"),
        "details": details,
    }
    if history:
        draft.facts["cost"] = history[-1].cost
