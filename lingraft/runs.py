"""One run of THE loop for a stage: its plan, loss, batches and number format, and the record that it leaves.

Masked language modelling and finetuning differ in the loss and the batches; what is trained is the stage's choice.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lingraft import masked_lm, precision
from lingraft.artifact import Draft
from lingraft.blocks import batches
from lingraft.config import Recipe
from lingraft.cost.formulas import Work, flops_per_update
from lingraft.encoder import Encoder
from lingraft.models import HISTORY_FILE
from lingraft.progress import say, shown
from lingraft.systems import Step, Trained
from lingraft.task_config import Finetuning
from lingraft.tasks.kinds import Prepared, TaskKind
from lingraft.train import Plan, Progress, train
from lingraft.training_config import Training

Batch = TypeVar("Batch")
Begun = tuple[Callable[[Batch], Tensor], Iterator[Batch]]
"""The loss of a batch, and the batches from the first one on."""
Watch = Callable[[Progress], None]
"""Is told every point of a learning curve, for example to record it."""


@dataclass(frozen=True)
class Run:
    """A training that has not begun yet."""

    points: Iterator[Progress]
    plan: Plan
    number_format: str

    def watched(self, seed: int, title: str, watch: Watch) -> list[Progress]:
        """Train to the end under a progress bar, and return the learning curve.

        Args:
            seed: what dropout draws from.
            title: of the progress bar.
            watch: is told every point.

        Raises:
            TrainingError: the loss is not finite.
        """
        history = []
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for point in shown(self.points, self.plan.steps, title):
                watch(point)
                history.append(point)
        return history


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
    recipe: Recipe, step: Step, encoder: Encoder, blocks_NT: Tensor, settings: Training, stops: Sequence[int] = ()
) -> Run:
    """Masked language modelling with the step's heads; what the step does not train is frozen here.

    Args:
        recipe: number format and threads.
        step: what is trained, over which layers, with which heads.
        encoder: the model of the step, with as many layers.
        blocks_NT: training blocks (N, T).
        settings: length and schedule.
        stops: further steps after which the run yields a point.
    """
    device, trained = precision.device(), trained_by(step, encoder)
    _train_only(encoder.to(device), trained)
    at_once = settings.blocks_at_once
    plan = Plan(
        steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        **_pace(settings),
        tokens_per_step=settings.batch_blocks * blocks_NT.shape[1],
        flops_per_step=step_flops(recipe, step, settings, len(encoder.vocabulary)),
        micro_batches=settings.batch_blocks // at_once,
        stops=frozenset(stops),
    )

    def begin() -> Begun[Tensor]:
        order = torch.Generator().manual_seed(settings.seed)
        masks = torch.Generator(device).manual_seed(settings.seed)
        stream = (tokens_BT.to(device) for tokens_BT in batches(blocks_NT, at_once, order))
        return masked_lm.loss(encoder, step.heads, settings.mask_rate, masks), stream

    encoder.train()
    return _run(begin, trained, plan, recipe)


def task_run(
    recipe: Recipe, step: Step, net: nn.Module, kind: TaskKind, data: Prepared, settings: Finetuning, seed: int
) -> Run:
    """Finetuning of the body and the task's head; the vocabulary and the MLM heads stay as they are."""
    trained = trained_by(step, net.to(precision.device()))
    _train_only(net, trained)
    batches_an_epoch, shape = math.ceil(len(data) / settings.batch_examples), recipe.encoder
    steps = max(1, round(settings.epochs * batches_an_epoch))
    tokens = settings.batch_examples * shape.block_tokens
    work = Work(step.layers, shape.width, 0, shape.block_tokens, settings.batch_examples, mask_rate=0.0, heads=0)
    plan = Plan(
        steps=steps,
        warmup_steps=round(settings.warmup_ratio * steps),
        **_pace(settings),
        tokens_per_step=tokens,
        flops_per_step=flops_per_update(step, work),
    )

    def begin() -> Begun[Any]:
        stream = kind.batches(data, settings.batch_examples, torch.Generator().manual_seed(seed))
        return lambda batch: kind.loss(net, batch), stream

    net.train()
    return _run(begin, trained, plan, recipe)


def _pace(settings: Training | Finetuning) -> dict[str, Any]:
    return settings.model_dump(include={"learning_rate", "weight_decay", "clip_norm", "log_every_steps"})


def _train_only(model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
    """Frozen parameters get no gradient, and what lies below all that trains is computed without autograd."""
    model.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)


def _run(begin: Callable[[], Begun[Batch]], trained: Sequence[nn.Parameter], plan: Plan, recipe: Recipe) -> Run:
    """The probe sees as many batches as time allows, so training begins anew: it must not depend on the clock."""
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    probed_loss, probed = begin()
    number_format, reason = precision.choose(recipe.precision, lambda: probed_loss(next(probed)), list(trained))
    say(reason)
    loss_of, stream = begin()
    return Run(train(loss_of, trained, stream, plan, precision.precise(number_format)), plan, number_format)


def describe(
    draft: Draft,
    language: str,
    data_hashes: dict[str, str],
    settings: Training | Finetuning,
    history: Sequence[Progress],
    number_format: str,
) -> None:
    """Put the learning curve into an artifact, and into its manifest what was trained, on what, and at what cost."""
    lines = "".join(json.dumps(point._asdict()) + "\n" for point in history)
    (draft.folder / HISTORY_FILE).write_text(lines, encoding="utf-8")
    details: dict[str, Any] = {"precision": number_format, "device": precision.device().type}
    draft.facts = {
        "language": language,
        "data_hashes": data_hashes,
        "recipe": settings.model_dump(mode="json"),
        "details": details,
    }
    if history:
        draft.facts["cost"] = history[-1].cost
