"""Learning a language's embeddings over a frozen mini-model (paper section 2, step 2).

A progressive adaptation learns them over one mini-model after another, each deeper than the one before; the paper
leaves this open (section 7). Everything but the depth is that of an adaptation over one mini-model: rows, their
moments, the order of the text, the masks and the schedule go on from depth to depth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lingraft import ranks
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.locks import remove_partial_writes
from lingraft.artifacts.manifest import Kind, artifact_fingerprint
from lingraft.config.progressive import DevLossSwitch, FixedSwitch, Progressive, steps_until
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.config.training import Adaptation, Training
from lingraft.console import say
from lingraft.data.bilingual_dictionary import pair_hashes
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import DepthError, RecipeError
from lingraft.model.encoder import Encoder, Vocabulary, freeze_except, mini_model
from lingraft.model.flops import step_flops
from lingraft.model.initialisation.initial_rows import InitialRows
from lingraft.model.loading import LoadedPrimary, load_mini, load_primary, save_vocabulary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.embeddings import embeddings_details, initial_rows, mark_of
from lingraft.stages.sentence_pairs import PairData, has_pairs
from lingraft.training import precision
from lingraft.training.batches import masked_lm_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed.launch import distributed
from lingraft.training.loop import Phase, Stream
from lingraft.training.masked_lm import Measure, accuracy, dev_evaluator, mean_loss
from lingraft.training.run import TrainingRun, masked_lm_phase, record_training, training_run
from lingraft.training.schedule import TRAINING_START, MetricsCallback, PhaseStart, Plateau
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
    minis: Sequence[Path] = (),
    checkpoints: Path | None = None,
    initial: Path | None = None,
) -> Artifact:
    """Learn one language's embeddings over a frozen mini-model of the primary (section 2, step 2).

    Over the recipe's own depth it begins on shallower mini-models where [adaptation.progressive] says so.

    Args:
        recipe: recipe, whose system says which model the embeddings are learned over.
        primary: primary that the embeddings are learned for.
        blocks: blocks of the target language.
        tokenizer: tokenizer that the blocks were made with.
        depth: bottom layers of the primary that the mini-model has.
        out: folder of the embeddings.
        watch: called with every point of the learning curve.
        minis: MINIPOST's fresh layers, where the system has them: of each depth that is adapted over, in order.
        checkpoints: folder for the embeddings along the way, each an artifact of its own (`step-<update>`), at the
            updates that the recipe's [adaptation] names; update 0 is the initialisation.
        initial: embeddings that `initialise` wrote, to start from; if absent, the rows are drawn by the recipe's seed.

    Raises:
        DepthError: the primary has no MLM head at `depth`, or a mini-model is of another depth.
        AlignmentError: a mini-model or `initial` was made from another primary.
        RecipeError: the recipe's [encoder] is not the primary's, its system and `minis` do not go together, or its
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
    lacks_pairs = not (source.encoder.depths or minis or has_pairs(recipe, pieces.language, initial))
    if lacks_pairs:
        say(f"{pieces.language!r} keeps its initial rows: the primary has no MLM head, and there are no sentence pairs")
        kept = recipe.adaptation.model_copy(update={"steps": 0, "warmup_steps": 0})
        recipe = recipe.model_copy(update={"adaptation": kept})
    settings = recipe.adaptation
    switch = settings.progressive if depth == settings.depth else None
    steps = [_adaptation_over(recipe, each) for each in (switch.depths if switch else (depth,))]
    models = _minis_of(recipe, source, steps, minis)
    depths = [step.layers - step.fresh_layers for step in steps]
    pairs = None
    if not lacks_pairs:
        updates = _most_updates(recipe, steps, len(pieces))
        pairs = PairData.load(recipe, source, pieces, depths, initial=initial, updates=updates)
    rows = initial_rows(recipe, source, pieces, initial)
    own, lent = len(rows.table_VD), f"; {len(pieces.borrowed_B)} more pieces share theirs" if pieces.lender else ""
    say(f"{settings.initialisation} initialisation: {rows.copied} of {own} rows are copied from the source{lent}")
    encoder, aligned_with = source.encoder, source.fingerprint
    del source  # and its table, once the encoder has another
    stops = settings.checkpoints_until(_most_updates(recipe, steps, len(pieces))) if checkpoints else ()
    made_from: dict[str, Any] = {
        "stage": "adapt",
        "system": recipe.system,
        "primary": aligned_with,
        "depth": depth,
        "blocks": data.fingerprint,
        "mini": artifact_fingerprint(minis[-1]) if minis else None,
        "stops": stops,
        **({"shallower_minis": [*map(artifact_fingerprint, minis[:-1])]} if minis[1:] else {}),
        **mark_of(initial),
        **pair_hashes(recipe, pieces.language),
    }
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.EMBEDDINGS, checkpointer, watch):
            return made
        dev = open_split(data, "dev")
        run = adaptation_run(
            recipe=recipe,
            steps=steps,
            minis=models,
            rows=rows,
            blocks=open_split(data, "train"),
            settings=settings,
            stops=stops,
            checkpointer=checkpointer,
            dev_score=_evaluator(encoder, models, dev, settings, accuracy),
            dev_loss=_evaluator(encoder, models, dev, settings, mean_loss),
            switch=switch,
            pairs=pairs,
        )
        swap(encoder, models[-1].vocabulary)
        writer = _EmbeddingsWriter(
            recipe=recipe,
            tokenizer=pieces,
            vocabulary=models[-1].vocabulary,
            run=run,
            switch=switch,
            checkpoints=checkpoints,
            stops=stops,
            details=embeddings_details(recipe, depth, steps[-1], rows) | _pairs_details(settings),
            origin={
                "aligned_with": aligned_with,
                "data_hashes": input_hashes(data) | mark_of(initial) | pair_hashes(recipe, pieces.language),
                "tokenizer_hash": pieces.hash,
            },
        )
        del rows  # a table as large as the one that is trained; that of the source has gone with the swap
        layers = ", then ".join(str(step.layers) for step in steps)
        with run.watched(f"adapt {pieces.language} over {layers} layers", watch) as report:
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
    switch: Progressive | None
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
        if self.switch:
            draft.facts["details"] |= {"phases": _phase_costs(self.switch, self.run)}

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
    steps: Sequence[Step],
    minis: Sequence[Encoder],
    rows: InitialRows,
    blocks: Blocks,
    settings: Adaptation,
    stops: Sequence[int] = (),
    checkpointer: CheckpointManager | None = None,
    dev_score: Callable[[], float] | None = None,
    dev_loss: Callable[[], float] | None = None,
    switch: Progressive | None = None,
    pairs: PairData | None = None,
) -> TrainingRun:
    """Put initial rows into mini-models and return the run that trains them and nothing else, not yet begun.

    `settings` count updates over the last mini-model; `switch` says when the next one follows. `pairs` are those of
    [adaptation.pairs].

    Raises:
        RecipeError: a depth's share is less than one update, or the batch cannot be divided over the processes.
    """
    vocabulary = make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special, rows.borrowed)
    for mini in minis:
        swap(mini, vocabulary)
        trained = freeze_except(mini, vocabulary.parameters())
    if switch is None:
        phases = [masked_lm_phase(recipe, steps[0], minis[0], settings, stops)]
    else:
        phases = _progressive_phases(
            recipe=recipe, switch=switch, steps=steps, minis=minis, settings=settings, stops=stops
        )
    stream: Stream = masked_lm_stream(blocks, settings)
    if pairs:
        swap(pairs.encoder, vocabulary)
        trained = freeze_except(pairs.encoder, [vocabulary.table_VD])
        phases = [pairs.phase(phase, step, settings) for phase, step in zip(phases, steps, strict=True)]
        stream = pairs.stream(settings)
    return training_run(
        recipe=recipe,
        phases=phases,
        trained=trained,
        stream=stream,
        checkpointer=checkpointer,
        dev_score=dev_score,
        dev_loss=dev_loss,
        sparse_tables=trained if pairs else (),
    )


def _progressive_phases(
    recipe: Recipe,
    switch: Progressive,
    steps: Sequence[Step],
    minis: Sequence[Encoder],
    settings: Training,
    stops: Sequence[int],
) -> list[Phase]:
    flops = [step_flops(recipe, step, settings, len(minis[-1].vocabulary)) for step in steps]
    if isinstance(switch, FixedSwitch):
        switch.updates(settings.steps, flops)  # refuses depths that get none
    phases = []
    for number, (step, mini, end) in enumerate(zip(steps, minis, switch.ends(), strict=True)):
        changes: dict[str, Any] = {
            "depth": switch.depths[number],
            "stride": flops[number] / flops[-1],
            "ends_at": None if end is None else end * settings.steps,
            "is_last": number + 1 == len(steps),
        }
        if isinstance(switch, DevLossSwitch) and not changes["is_last"]:
            changes["look_every_steps"] = switch.look_every_steps
            changes["plateau"] = Plateau(switch.window_looks, switch.threshold)
        phases.append(masked_lm_phase(recipe, step, mini, settings, stops, **changes))
    return phases


def _phase_costs(switch: Progressive, run: TrainingRun) -> list[dict[str, Any]]:
    """Depth, updates and FLOPs of each phase so far, for the manifest."""
    points, starts = run.state.points, run.state.phase_starts
    end = PhaseStart(points[-1].step, points[-1].flops) if points else TRAINING_START
    return [
        {"depth": depth, "steps": after.step - before.step, "flops": after.flops - before.flops}
        for depth, before, after in zip(switch.depths, [TRAINING_START, *starts], [*starts, end], strict=False)
    ]


def _pairs_details(settings: Adaptation) -> dict[str, Any]:
    """Say how pairs were learned from; embeddings by masked tokens alone have no such detail."""
    if settings.pairs is None:
        return {}
    return {"pairs": settings.pairs.model_dump(mode="json", include={"layers", "pooling"})}


def _evaluator(
    primary: Encoder, minis: Sequence[Encoder], dev: Blocks, settings: Training, measure: Measure
) -> Callable[[], float]:
    """Return a function that measures the primary, which has the embeddings that are learned: that is their use.

    A primary without an MLM head cannot be measured; then it is the last mini-model.
    """
    judged = primary if primary.depths else minis[-1]
    # Pairs may be learned by through the primary, too.
    evaluate = dev_evaluator(nn.ModuleList([*minis, primary]), judged, dev, settings, measure)

    def on_device() -> float:
        judged.to(precision.device())
        return evaluate()

    return on_device


def _most_updates(recipe: Recipe, steps: Sequence[Step], vocabulary: int) -> int:
    """Updates if all were over the shallowest mini-model."""
    first, last = (step_flops(recipe, steps[number], recipe.adaptation, vocabulary) for number in (0, -1))
    return steps_until(recipe.adaptation.steps, 0, first / last)


def _adaptation_over(recipe: Recipe, depth: int) -> Step:
    step = recipe.steps_over(depth)[Stage.ADAPT]
    if step.layers - step.fresh_layers != depth:
        raise DepthError(
            f"system {recipe.system} adapts over all {step.layers} layers, but depth {depth} was asked for. Ask for "
            f"{step.layers}, or set system = 'MINIJOINT'."
        )
    return step


def _minis_of(recipe: Recipe, primary: LoadedPrimary, steps: Sequence[Step], folders: Sequence[Path]) -> list[Encoder]:
    wanted = len(steps) if steps[-1].fresh_layers else 0
    if len(folders) != wanted:
        raise RecipeError(
            f"adaptation by {recipe.system} over depths {[step.layers - step.fresh_layers for step in steps]} needs "
            f"{wanted} mini-models of step 1b, but got {len(folders)}. Give the folder of one a depth, in their order "
            "(--shallower-mini for all but the last, then --mini), or change `system`."
        )
    fresh: Sequence[Path | None] = folders or [None] * len(steps)
    return [mini_of(primary, step, folder) for step, folder in zip(steps, fresh, strict=True)]


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
