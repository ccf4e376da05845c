"""Learning a language's embeddings over a frozen mini-model (paper section 2, step 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft import ranks
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.locks import remove_partial_writes
from lingraft.artifacts.manifest import Kind, artifact_fingerprint
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.config.training import Adaptation
from lingraft.console import say
from lingraft.data.bilingual_dictionary import pair_hashes
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import DepthError, RecipeError
from lingraft.model.encoder import Encoder, Vocabulary, freeze_except, mini_model
from lingraft.model.initialisation.initial_rows import InitialRows
from lingraft.model.loading import LoadedPrimary, load_mini, load_primary, save_vocabulary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.embeddings import embeddings_details, initial_rows, mark_of
from lingraft.stages.sentence_pairs import PairData, has_pairs
from lingraft.training.batches import masked_lm_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed.launch import distributed
from lingraft.training.loop import Stream
from lingraft.training.run import TrainingRun, masked_lm_plan, record_training, training_run
from lingraft.training.schedule import MetricsCallback
from lingraft.training.stage_output import already_done, require_empty, resumable, save_result, was_saved_before


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
    initial: Path | None = None,
) -> Artifact:
    """Learn one language's embeddings over a frozen mini-model of the primary (section 2, step 2).

    Args:
        recipe: recipe, whose system says which model the embeddings are learned over.
        primary: primary that the embeddings are learned for.
        blocks: blocks of the target language.
        tokenizer: tokenizer that the blocks were made with.
        depth: bottom layers of the primary that the mini-model has.
        out: folder of the embeddings.
        watch: called with every point of the learning curve.
        mini: MINIPOST's fresh layers, where the system has them.
        checkpoints: folder for the embeddings along the way, each an artifact of its own (`step-<update>`), at the
            updates that the recipe's [adaptation] names; update 0 is the initialisation.
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
    require_empty(out)
    source = load_primary(primary, recipe.primary_shape)
    pieces = Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    lacks_pairs = not (source.encoder.depths or mini or has_pairs(recipe, pieces.language, initial))
    if lacks_pairs:
        say(f"{pieces.language!r} keeps its initial rows: the primary has no MLM head, and there are no sentence pairs")
        kept = recipe.adaptation.model_copy(update={"steps": 0, "warmup_steps": 0})
        recipe = recipe.model_copy(update={"adaptation": kept})
    settings = recipe.adaptation
    step = _adaptation_over(recipe, depth)
    model = mini_of(source, step, mini)
    pairs = None
    if not lacks_pairs:
        pairs = PairData.load(recipe, source, pieces, [depth], initial=initial, updates=settings.steps)
    rows = initial_rows(recipe, source, pieces, initial)
    own, lent = len(rows.table_VD), f"; {len(pieces.borrowed_B)} more pieces share theirs" if pieces.lender else ""
    say(f"{settings.initialisation} initialisation: {rows.copied} of {own} rows are copied from the source{lent}")
    aligned_with = source.fingerprint
    del source  # and its table, once the mini-model has another
    stops = settings.checkpoint_steps if checkpoints else ()
    made_from: dict[str, Any] = {
        "stage": "adapt",
        "system": recipe.system,
        "primary": aligned_with,
        "depth": depth,
        "blocks": data.fingerprint,
        "mini": artifact_fingerprint(mini) if mini else None,
        "stops": stops,
        **mark_of(initial),
        **pair_hashes(recipe, pieces.language),
    }
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.EMBEDDINGS, checkpointer, watch):
            return made
        run = adaptation_run(
            recipe=recipe,
            step=step,
            mini=model,
            rows=rows,
            blocks=open_split(data, "train"),
            settings=settings,
            stops=stops,
            checkpointer=checkpointer,
            pairs=pairs,
        )
        writer = _EmbeddingsWriter(
            recipe=recipe,
            tokenizer=pieces,
            vocabulary=model.vocabulary,
            run=run,
            checkpoints=checkpoints,
            stops=stops,
            details=embeddings_details(recipe, depth, step, rows) | _pairs_details(settings),
            origin={
                "aligned_with": aligned_with,
                "data_hashes": input_hashes(data) | mark_of(initial) | pair_hashes(recipe, pieces.language),
                "tokenizer_hash": pieces.hash,
            },
        )
        del rows  # a table as large as the one that is trained
        with run.watched(f"adapt {pieces.language} over {recipe.layers_through(step)} layers", watch) as report:
            if not run.earlier:
                writer.save_at_stop(0)
            for point in run.points:
                report(point)
                writer.save_at_stop(point.step)
        return save_result(out, Kind.EMBEDDINGS, writer.fill, checkpointer)


@dataclass(frozen=True)
class _EmbeddingsWriter:
    """Writes embeddings as far as they are learned: at the end, and along the way."""

    recipe: Recipe
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    run: TrainingRun
    checkpoints: Path | None
    """Folder of the embeddings along the way; None if none are wanted."""
    stops: Sequence[int]
    """Updates after which they are written."""
    details: dict[str, Any]
    """Details of the manifest."""
    origin: dict[str, Any]
    """Facts of the manifest by which earlier embeddings of the same adaptation are known."""

    def fill(self, draft: Draft) -> None:
        """Put the embeddings and their record into an artifact."""
        save_vocabulary(draft, self.vocabulary, self.tokenizer)
        settings, data_hashes = self.recipe.adaptation, self.origin["data_hashes"]
        record_training(draft, self.tokenizer.language, data_hashes, settings, self.run)
        draft.facts |= self.origin
        draft.facts["details"] |= self.details

    def save_at_stop(self, step: int) -> None:
        """Write the embeddings if the update is a stop, unless the training did before it was interrupted."""
        if self.checkpoints is None or step not in self.stops or not ranks.is_rank_zero():
            return
        place = self.checkpoints / f"step-{step:08d}"
        remove_partial_writes(place)
        if not was_saved_before(place, self.recipe.adaptation, self.recipe.encoder.dropout, self.origin):
            with artifact.create(place, Kind.EMBEDDINGS) as draft:
                self.fill(draft)


def adaptation_run(
    recipe: Recipe,
    step: Step,
    mini: Encoder,
    rows: InitialRows,
    blocks: Blocks,
    settings: Adaptation,
    stops: Sequence[int] = (),
    checkpointer: CheckpointManager | None = None,
    pairs: PairData | None = None,
) -> TrainingRun:
    """Put initial rows into a mini-model and return the run that trains them and nothing else, not yet begun.

    `pairs` are those of [adaptation.pairs].

    Raises:
        RecipeError: the batch cannot be divided over the processes.
    """
    vocabulary = make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special, rows.borrowed)
    swap(mini, vocabulary)
    trained = freeze_except(mini, vocabulary.parameters())
    plan = masked_lm_plan(recipe, step, mini, settings, stops)
    stream: Stream = masked_lm_stream(blocks, settings)
    if pairs:
        swap(pairs.encoder, vocabulary)
        trained = freeze_except(pairs.encoder, [vocabulary.table_VD])
        plan = pairs.plan(plan, step, settings)
        stream = pairs.stream(settings)
    return training_run(
        recipe=recipe,
        plan=plan,
        trained=trained,
        stream=stream,
        checkpointer=checkpointer,
        sparse_tables=trained if pairs else (),
    )


def _pairs_details(settings: Adaptation) -> dict[str, Any]:
    """Say how pairs were learned from; embeddings by masked tokens alone have no such detail."""
    if settings.pairs is None:
        return {}
    return {"pairs": settings.pairs.model_dump(mode="json", include={"layers", "pooling"})}


def _adaptation_over(recipe: Recipe, depth: int) -> Step:
    step = recipe.steps_over(depth)[Stage.ADAPT]
    if step.layers - step.fresh_layers != depth:
        raise DepthError(
            f"system {recipe.system} adapts over all {step.layers} layers, but depth {depth} was asked for. Ask for "
            f"{step.layers}, or set system = 'MINIJOINT'."
        )
    return step


def mini_of(primary: LoadedPrimary, step: Step, mini: Path | None) -> Encoder:
    """Return the model that a step of adaptation runs over: a cut of the primary, with the step's fresh layers.

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
