"""The training stages, each in a screenful: load artifacts, choose what is trained, train, save.

What a stage trains, over which layers and with which heads, is the system's (`lingraft.systems`), not decided here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingraft import artifact
from lingraft.artifact import Artifact, Kind
from lingraft.blocks import load_blocks
from lingraft.config import Recipe
from lingraft.embeddings import swap, vocabulary_of
from lingraft.encoder import Encoder, fresh_layers, mini_model
from lingraft.errors import DepthError, RecipeError
from lingraft.files import require_new
from lingraft.initialisation.rows import Initialised, initialise
from lingraft.models import Primary, load_mini, load_primary, save_task, save_vocabulary
from lingraft.progress import say
from lingraft.runs import Run, Watch, describe, masked_lm_run, task_run
from lingraft.systems import Stage, Step
from lingraft.tasks.loading import kind_of, load_examples
from lingraft.text import load_text
from lingraft.tokenizer import Tokenizer
from lingraft.train import Progress
from lingraft.training_config import Training


def pretrain(recipe: Recipe, blocks: Path, tokenizer: Path, out: Path, watch: Watch) -> Artifact:
    """Train the primary with its MLM heads from nothing, in the source language (paper section 2, step 1).

    Raises:
        TokenizerError: the tokenizer is not the source's, or the blocks were made with another.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    pieces = Tokenizer.load(tokenizer, recipe.source)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, step = recipe.pretraining, recipe.steps_over(recipe.adaptation.depth)[Stage.PRETRAIN]
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        encoder = Encoder(recipe.primary_shape, len(pieces))
    run = masked_lm_run(recipe, step, encoder, _train(data), settings)
    history = run.watched(settings.seed, f"pretrain {recipe.source}", watch)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", encoder.body_tensors())
        save_vocabulary(draft, encoder.vocabulary, pieces)
        describe(draft, pieces.language, {"blocks": data.fingerprint}, settings, history, run.number_format)
        draft.facts["details"] |= {"shape": encoder.shape.model_dump(mode="json")}
    return Artifact.load(out, Kind.PRIMARY)


def build_mini(recipe: Recipe, primary: Path, blocks: Path, out: Path, watch: Watch) -> Artifact:
    """Train MINIPOST's fresh layers between the bottom of the primary and its MLM head (section 2, step 1b).

    Tokens pass the lowest layers without autograd: nothing there is trained, nor anything below.

    Args:
        recipe: with its [mini].
        primary: stays as it is, bit for bit.
        blocks: of the source language, made with the primary's tokenizer.
        out: where the fresh layers go.
        watch: is told every point of the learning curve.

    Raises:
        RecipeError: the recipe's system has no step 1b, or its [encoder] is not the primary's.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    settings, step = recipe.require_mini(), recipe.steps_over(recipe.adaptation.depth)[Stage.BUILD_MINI]
    source = load_primary(primary, recipe.primary_shape)
    data = load_blocks(blocks, source.tokenizer, recipe.encoder.block_tokens)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        fresh = fresh_layers(source.encoder.shape, step.fresh_layers)
    depth = step.layers - step.fresh_layers
    mini = mini_model(source.encoder, depth, fresh)
    run = masked_lm_run(recipe, step, mini, _train(data), settings)
    history = run.watched(settings.seed, f"build mini-model of {step.layers} layers", watch)
    with artifact.create(out, Kind.MINI) as draft:
        draft.tensors("layers", fresh.state_dict())
        describe(draft, recipe.source, {"blocks": data.fingerprint}, settings, history, run.number_format)
        draft.facts["aligned_with"] = source.fingerprint
        draft.facts["details"] |= {"shape": mini.shape.model_dump(mode="json"), "depth": depth}
        draft.facts["details"] |= {"fresh_layers": step.fresh_layers, "system": recipe.system}
    return Artifact.load(out, Kind.MINI)


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

    Raises:
        DepthError: the primary has no MLM head at `depth`, or the mini-model is of another depth.
        AlignmentError: the mini-model was built from another primary.
        RecipeError: the recipe's [encoder] is not the primary's, or its system and `mini` do not go together.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or an output cannot be written.
    """
    require_new(out)
    source, pieces = load_primary(primary, recipe.primary_shape), Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, step = recipe.adaptation, _adaptation_over(recipe, depth)
    model, rows = mini_of(source, step, mini), initial_rows(recipe, source, pieces)
    say(f"{settings.initialisation} initialisation: {rows.copied} of {len(pieces)} rows are copied from the source")
    stops = settings.checkpoint_steps if checkpoints else ()
    run = adaptation_run(recipe, step, model, rows, _train(data), settings, stops)
    facts: dict[str, Any] = {"depth": depth, "fresh_layers": step.fresh_layers, "system": recipe.system}
    facts |= {"overlap": rows.copied, "overlap_by_class": rows.counts(), "vocabulary": len(pieces)}
    history: list[Progress] = []

    def save(folder: Path) -> None:
        with artifact.create(folder, Kind.EMBEDDINGS) as draft:
            save_vocabulary(draft, model.vocabulary, pieces)
            describe(draft, pieces.language, {"blocks": data.fingerprint}, settings, history, run.number_format)
            draft.facts["aligned_with"] = source.fingerprint
            draft.facts["details"] |= facts

    def keep(point: Progress) -> None:
        watch(point)
        history.append(point)
        if checkpoints and point.step in stops:
            save(checkpoints / f"step-{point.step:08d}")

    if checkpoints and 0 in stops:
        save(checkpoints / f"step-{0:08d}")
    run.watched(settings.seed, f"adapt {pieces.language} over {step.layers} layers", keep)
    save(out)
    return Artifact.load(out, Kind.EMBEDDINGS)


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
    blocks_NT: Tensor,
    settings: Training,
    stops: Sequence[int] = (),
) -> Run:
    """Put `rows` into a mini-model and return the run that trains them and nothing else, not yet begun."""
    swap(mini, vocabulary_of(rows.table_VD.clone(), rows.bias_V.clone(), rows.special))
    return masked_lm_run(recipe, step, mini, blocks_NT, settings, stops)


def finetune(
    recipe: Recipe,
    task: str,
    primary: Path,
    text: Path | None,
    seed: int,
    out: Path,
    watch: Watch,
    layers: int | None = None,
) -> Artifact:
    """Finetune the body on a task in the source language, token table frozen (section 2, step 3).

    Args:
        recipe: with the task.
        task: its name.
        primary: the body; with its own embeddings.
        text: text of the source language, where the task's kind is 'documents'.
        seed: of head, dropout and order.
        out: where the task goes.
        watch: is told every point of the learning curve.
        layers: finetune the mini-model of so many bottom layers in the primary's place (the paper's table 5).

    Raises:
        RecipeError: the recipe has no such task, or its [encoder] is not the primary's.
        DepthError: the primary has no MLM head at `layers`.
        TextError: examples are missing, damaged or without the labels they need.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    wanted, source = recipe.task(task), load_primary(primary, recipe.primary_shape)
    body = source.encoder if layers is None else mini_model(source.encoder, layers)
    kind, shape = kind_of(wanted), body.shape
    documents = load_text(text, recipe.source) if text else None
    examples = load_examples(wanted, "train", recipe.source, documents)
    labels = list(wanted.labels) or kind.labels(examples)
    data = kind.prepare(examples, labels, source.tokenizer, shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = kind.net(body, labels)
    held_out = kind.prepare(load_examples(wanted, "dev", recipe.source, documents), labels, source.tokenizer, shape)
    step = replace(recipe.steps_over(recipe.adaptation.depth)[Stage.FINETUNE], layers=shape.layers)
    run = task_run(recipe, step, net, kind, data, wanted.finetuning, seed)
    history = run.watched(seed, f"finetune {task}, seed {seed}", watch)
    judged = kind.judge(net, held_out, recipe.source)
    hashes = {"text": documents.fingerprint} if documents else {}
    hashes |= {"examples": _content_hash(examples)}
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, net)
        describe(draft, recipe.source, hashes, wanted.finetuning, history, run.number_format)
        draft.facts["aligned_with"] = source.fingerprint
        draft.facts["details"] |= {"task": task, "settings": wanted.model_dump(mode="json"), "labels": labels}
        draft.facts["details"] |= {"seed": seed, "metric": kind.metric, "dev_score": judged.score}
        draft.facts["details"] |= {"examples": len(examples), "rows": len(data), "truncated": data.truncated}
        draft.facts["details"] |= {"shape": shape.model_dump(mode="json")}
    return Artifact.load(out, Kind.TASK)


def _train(blocks: Artifact) -> Tensor:
    return blocks.tensors("train")["tokens_NT"]


def _content_hash(examples: Sequence[object]) -> str:
    """SHA-256 over examples, which are records of texts, labels and numbers."""
    return hashlib.sha256("\n".join(map(repr, examples)).encode()).hexdigest()
