"""Learning a language's embeddings over a frozen mini-model (paper section 2, step 2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Cost, Draft, Kind, artifact_fingerprint
from lingraft.artifacts.locks import remove_partial_writes
from lingraft.config.progressive import Progressive, steps_until
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.config.training import Training
from lingraft.console import say
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import DepthError, RecipeError
from lingraft.model.encoder import Encoder, mini_model
from lingraft.model.flops import step_flops
from lingraft.model.initialisation.rows import InitialRows
from lingraft.model.loading import Primary, load_mini, load_primary, save_vocabulary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.initialise import initial_rows, mark_of
from lingraft.training import masked_lm, precision
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.distributed.launch import distributed
from lingraft.training.progressive import phase_costs, progressive_run
from lingraft.training.resuming import (
    Measure,
    already_done,
    dev_evaluator,
    require_empty,
    resumable,
    save_result,
    was_saved_before,
)
from lingraft.training.run import TrainingRun, masked_lm_run, record_training
from lingraft.training.schedule import MetricsCallback, TrainingMetrics


@distributed
def adapt(
    recipe: Recipe,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    depth: int,
    out: Path,
    watch: MetricsCallback,
    mini: Path | None = None,
    checkpoints: Path | None = None,
    state: Path | None = None,
    shallower_minis: Sequence[Path] = (),
    initial: Path | None = None,
) -> Artifact:
    """Learn one language's embeddings over a frozen mini-model of the primary (section 2, step 2).

    Over the recipe's own depth it begins on shallower mini-models where [adaptation.progressive] says so.

    Args:
        recipe: its system says which model the embeddings are learned over.
        primary: whose body they are to fit.
        blocks: of the target language.
        tokenizer: that the blocks were made with.
        depth: bottom layers of the primary that the mini-model has.
        out: where the embeddings go.
        watch: is told every point of the learning curve.
        mini: MINIPOST's fresh layers, where the system has them.
        checkpoints: folder for the embeddings along the way, each an artifact of its own (`step-<update>`), at the
            updates that the recipe's [adaptation] names; update 0 is the initialisation.
        state: where checkpoints stand while it trains; `<out>.training` if absent.
        shallower_minis: MINIPOST's fresh layers of the depths before `depth` in a progressive adaptation, in order.
        initial: embeddings that `initialise` wrote, to start from; if absent, the rows are drawn by the recipe's seed.

    Raises:
        DepthError: the primary has no MLM head at `depth`, or the mini-model is of another depth.
        AlignmentError: the mini-model or `initial` was made from another primary.
        RecipeError: the recipe's [encoder] is not the primary's, its system and `mini` do not go together, or its
            initialisation is not that of `initial`, or needs one.
        TokenizerError: the blocks or `initial` were made with another tokenizer.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or an output cannot be written.
    """
    require_empty(out, state)
    source, pieces = load_primary(primary, recipe.primary_shape), Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, course = recipe.adaptation, _course(recipe, depth, source, mini, shallower_minis)
    model, step, rows = course.minis[-1], course.steps[-1], initial_rows(recipe, source, pieces, initial)
    say(f"{settings.initialisation} initialisation: {rows.copied} of {len(pieces)} rows are copied from the source")
    stops = settings.checkpoints_until(course.most_updates(recipe, len(pieces))) if checkpoints else ()
    made_from: dict[str, Any] = {"stage": "adapt", "system": recipe.system, "primary": source.fingerprint}
    made_from |= {
        "depth": depth,
        "blocks": data.fingerprint,
        "mini": artifact_fingerprint(mini) if mini else None,
        "stops": stops,
    }
    made_from |= {"shallower_minis": [*map(artifact_fingerprint, shallower_minis)]} if shallower_minis else {}
    made_from |= mark_of(initial)
    with resumable(recipe, out, state, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.EMBEDDINGS, checkpointer, watch):
            return made
        run = course.run(recipe, source, rows, data, stops, checkpointer)
        facts: dict[str, Any] = {"depth": depth, "fresh_layers": step.fresh_layers, "system": recipe.system}
        facts |= {"overlap": rows.copied, "overlap_by_class": rows.counts(), "vocabulary": len(pieces)}
        origin: dict[str, Any] = {
            "aligned_with": source.fingerprint,
            "data_hashes": input_hashes(data) | mark_of(initial),
        }
        origin |= {"tokenizer_hash": pieces.hash}
        curve = _Curve(checkpoints, stops, settings, recipe.encoder.dropout, origin)
        history: list[TrainingMetrics] = []

        def fill(draft: Draft) -> None:
            save_vocabulary(draft, model.vocabulary, pieces)
            record_training(draft, pieces.language, origin["data_hashes"], settings, history, run)
            draft.facts |= origin
            draft.facts["details"] |= facts | course.phase_costs(run, history)

        def keep(point: TrainingMetrics) -> None:
            watch(point)
            history.append(point)
            if point not in run.earlier:
                curve.save(point.step, fill)

        if not run.earlier:
            curve.save(0, fill)
        run.watched(f"adapt {pieces.language} over {course.title} layers", keep)
        return save_result(out, Kind.EMBEDDINGS, fill, run)


@dataclass(frozen=True)
class _Curve:
    """The embeddings along the way of an adaptation, each an artifact of its own."""

    folder: Path | None
    """Absent: none are kept."""
    stops: Sequence[int]
    settings: Training
    dropout: float
    origin: Mapping[str, Any]
    """What their manifests say of where they come from."""

    def save(self, reached: int, fill: Callable[[Draft], None]) -> None:
        """Save those at a stop, unless a training that was interrupted has done so, which this one repeats.

        Raises:
            ArtifactError: those of another training stand there.
        """
        if self.folder is None or reached not in self.stops or not process_group.is_rank_zero():
            return
        place = self.folder / f"step-{reached:08d}"
        remove_partial_writes(place)
        if not was_saved_before(place, self.settings, self.dropout, self.origin):
            with artifact.create(place, Kind.EMBEDDINGS) as draft:
                fill(draft)


@dataclass(frozen=True)
class _Course:
    """The models that embeddings are learned over, one after the other; of a plain adaptation there is one."""

    steps: Sequence[Step]
    minis: Sequence[Encoder]
    switch: Progressive | None

    @property
    def title(self) -> str:
        """Layers of the models, for people."""
        return ", then ".join(str(step.layers) for step in self.steps)

    def most_updates(self, recipe: Recipe, vocabulary: int) -> int:
        """Updates if all were over the shallowest model."""
        settings = recipe.adaptation
        first, last = (step_flops(recipe, self.steps[n], settings, vocabulary) for n in (0, -1))
        return steps_until(settings.steps, 0, first / last)

    def run(
        self,
        recipe: Recipe,
        primary: Primary,
        rows: InitialRows,
        data: Artifact,
        stops: Sequence[int],
        checkpointer: CheckpointManager,
    ) -> TrainingRun:
        """The training, not yet begun; dev score and loss are the primary's, which is what embeddings are for."""
        settings, train = recipe.adaptation, open_split(data, "train")
        judge, dev_loss = (self._look(primary, open_split(data, "dev"), settings, measure) for measure in _MEASURES)
        if self.switch is None:
            return adaptation_run(
                recipe, self.steps[0], self.minis[0], rows, train, settings, stops, checkpointer, judge
            )
        given = recipe, self.switch, self.steps, self.minis, rows, train, settings, stops
        return progressive_run(*given, checkpointer, judge, dev_loss)

    def _look(self, primary: Primary, dev: Blocks, settings: Training, measure: Measure) -> Callable[[], float]:
        look = dev_evaluator(nn.ModuleList(self.minis), primary.encoder, dev, settings, measure)

        def swapped() -> float:
            swap(primary.encoder.to(precision.device()), self.minis[-1].vocabulary)
            return look()

        return swapped

    def phase_costs(self, run: TrainingRun, history: Sequence[TrainingMetrics]) -> dict[str, Any]:
        """What a manifest says of phases; nothing of a plain adaptation."""
        if self.switch is None:
            return {}
        return {"phases": phase_costs(self.switch, run.state, history[-1].cost if history else Cost())}


_MEASURES: tuple[Measure, Measure] = (masked_lm.accuracy, masked_lm.mean_loss)


def _course(recipe: Recipe, depth: int, primary: Primary, mini: Path | None, shallower: Sequence[Path]) -> _Course:
    """The recipe's progressive adaptation over its own depth, a plain one over any other."""
    switch = recipe.adaptation.progressive if depth == recipe.adaptation.depth else None
    steps = [_adaptation_over(recipe, each) for each in (switch.depths if switch else (depth,))]
    wanted = len(steps) - 1 if steps[-1].fresh_layers else 0
    if len(shallower) != wanted:
        raise RecipeError(
            f"adaptation by {recipe.system} over depths {[step.layers - step.fresh_layers for step in steps]} needs "
            f"{wanted} shallower mini-models of step 1b, but got {len(shallower)}. Give the folder of each, in the "
            "order of their depths (--shallower-mini)."
        )
    folders = (*shallower, mini) if wanted else (mini,) * len(steps)
    return _Course(steps, [mini_of(primary, step, at) for step, at in zip(steps, folders, strict=True)], switch)


def _adaptation_over(recipe: Recipe, depth: int) -> Step:
    step = recipe.steps_over(depth)[Stage.ADAPT]
    if step.layers - step.fresh_layers != depth:
        raise DepthError(
            f"system {recipe.system} adapts over all {step.layers} layers, but depth {depth} was asked for. Ask for "
            f"{step.layers}, or set system = 'MINIJOINT'."
        )
    return step


def mini_of(primary: Primary, step: Step, mini: Path | None) -> Encoder:
    """The model that a step of adaptation runs over: a cut of the primary, with fresh layers if the step has them.

    Raises:
        RecipeError: fresh layers are needed and not given, or given and not needed.
        DepthError: the primary has no MLM head there, or the fresh layers are for another depth.
        AlignmentError: the fresh layers were trained in another primary.
    """
    if bool(step.fresh_layers) != (mini is not None):
        needed = "needs the mini-model of step 1b" if step.fresh_layers else "has no use for a mini-model of step 1b"
        mend = "Give the folder that `lingraft mini` wrote (--mini)" if step.fresh_layers else "Leave it out (--mini)"
        raise RecipeError(f"adaptation over {step.layers} layers {needed}, but got {mini}. {mend}, or change `system`.")
    if mini is None:
        return mini_model(primary.encoder, step.layers)
    built = load_mini(mini)
    if (built.depth, len(built.layers)) != (step.layers - step.fresh_layers, step.fresh_layers):
        raise DepthError(
            f"{mini} is a mini-model of {built.depth} + {len(built.layers)} layers, but {step.layers} of which "
            f"{step.fresh_layers} are fresh are wanted. Build it anew, or ask for its depth."
        )
    return built.build_model(primary)


def adaptation_run(
    recipe: Recipe,
    step: Step,
    mini: Encoder,
    rows: InitialRows,
    blocks: Blocks,
    settings: Training,
    stops: Sequence[int] = (),
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
) -> TrainingRun:
    """Put `rows` into a mini-model and return the run that trains them and nothing else, not yet begun."""
    swap(mini, make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special))
    return masked_lm_run(recipe, step, mini, blocks, settings, stops, checkpointer, judge)
