"""Learning a language's embeddings over a frozen mini-model (paper section 2, step 2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lingraft import artifact, precision, processes
from lingraft.alone import remove_torn
from lingraft.artifact import Artifact, Draft, Kind
from lingraft.blocks import load_blocks, split
from lingraft.config import Recipe
from lingraft.embeddings import swap, vocabulary_of
from lingraft.encoder import Encoder, mini_model
from lingraft.errors import DepthError, RecipeError
from lingraft.initialisation.rows import Initialised, initialise
from lingraft.keeper import Keeper
from lingraft.kept import finished, keeping, masked_judge, require_room, saved, saved_along
from lingraft.models import Primary, load_mini, load_primary, save_vocabulary
from lingraft.plan import Progress
from lingraft.progress import say
from lingraft.resumed import mark
from lingraft.runs import Run, Watch, describe, masked_lm_run
from lingraft.shards import Blocks
from lingraft.spread import spread
from lingraft.systems import Stage, Step
from lingraft.tokenizer import Tokenizer
from lingraft.training_config import Training


@spread
def adapt(
    recipe: Recipe,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    depth: int,
    out: Path,
    watch: Watch,
    mini: Path | None = None,
    checkpoints: Path | None = None,
    state: Path | None = None,
) -> Artifact:
    """Learn one language's embeddings over a frozen mini-model of the primary (section 2, step 2).

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

    Raises:
        DepthError: the primary has no MLM head at `depth`, or the mini-model is of another depth.
        AlignmentError: the mini-model was built from another primary.
        RecipeError: the recipe's [encoder] is not the primary's, or its system and `mini` do not go together.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or an output cannot be written.
    """
    require_room(out, state)
    source, pieces = load_primary(primary, recipe.primary_shape), Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, step = recipe.adaptation, _adaptation_over(recipe, depth)
    model, rows = mini_of(source, step, mini), initial_rows(recipe, source, pieces)
    say(f"{settings.initialisation} initialisation: {rows.copied} of {len(pieces)} rows are copied from the source")
    stops = settings.checkpoint_steps if checkpoints else ()
    made_from: dict[str, Any] = {"stage": "adapt", "system": recipe.system, "primary": source.fingerprint}
    made_from |= {"depth": depth, "blocks": data.fingerprint, "mini": mark(mini) if mini else None, "stops": stops}
    with keeping(recipe, out, state, settings, made_from) as keeper:
        if made := finished(out, Kind.EMBEDDINGS, keeper, watch):
            return made
        judge = _judge_in(source, model, split(data, "dev"), settings)
        run = adaptation_run(recipe, step, model, rows, split(data, "train"), settings, stops, keeper, judge)
        facts: dict[str, Any] = {"depth": depth, "fresh_layers": step.fresh_layers, "system": recipe.system}
        facts |= {"overlap": rows.copied, "overlap_by_class": rows.counts(), "vocabulary": len(pieces)}
        origin: dict[str, Any] = {"aligned_with": source.fingerprint, "data_hashes": {"blocks": data.fingerprint}}
        curve = _Curve(checkpoints, stops, settings, recipe.encoder.dropout, origin)
        history: list[Progress] = []

        def fill(draft: Draft) -> None:
            save_vocabulary(draft, model.vocabulary, pieces)
            describe(draft, pieces.language, origin["data_hashes"], settings, history, run)
            draft.facts |= origin
            draft.facts["details"] |= facts

        def keep(point: Progress) -> None:
            watch(point)
            history.append(point)
            if point not in run.earlier:
                curve.save(point.step, fill)

        if not run.earlier:
            curve.save(0, fill)
        run.watched(f"adapt {pieces.language} over {step.layers} layers", keep)
        return saved(out, Kind.EMBEDDINGS, fill, run)


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
        if self.folder is None or reached not in self.stops or not processes.leads():
            return
        place = self.folder / f"step-{reached:08d}"
        remove_torn(place)
        if not saved_along(place, self.settings, self.dropout, self.origin):
            with artifact.create(place, Kind.EMBEDDINGS) as draft:
                fill(draft)


def _judge_in(primary: Primary, mini: Encoder, dev: Blocks, settings: Training) -> Callable[[], float]:
    """The dev score of embeddings that a mini-model is learning, in the primary, which is what they are for."""
    score = masked_judge(mini, primary.encoder, dev, settings)

    def swapped_score() -> float:
        swap(primary.encoder.to(precision.device()), mini.vocabulary)
        return score()

    return swapped_score


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
    return built.of(primary)


def initial_rows(recipe: Recipe, primary: Primary, pieces: Tokenizer) -> Initialised:
    """A language's embeddings before training; the same every time for one recipe."""
    settings = recipe.adaptation
    generator = torch.Generator().manual_seed(settings.seed)
    return initialise(primary.encoder.vocabulary, primary.tokenizer, pieces, settings.initialisation, generator)


def adaptation_run(
    recipe: Recipe,
    step: Step,
    mini: Encoder,
    rows: Initialised,
    blocks: Blocks,
    settings: Training,
    stops: Sequence[int] = (),
    keeper: Keeper | None = None,
    judge: Callable[[], float] | None = None,
) -> Run:
    """Put `rows` into a mini-model and return the run that trains them and nothing else, not yet begun."""
    swap(mini, vocabulary_of(rows.table_VD.clone(), rows.bias_V.clone(), rows.special))
    return masked_lm_run(recipe, step, mini, blocks, settings, stops, keeper, judge)
