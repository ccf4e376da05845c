"""The training stages, each in a screenful: load artifacts, choose what is trained, train, save.

What a stage trains, over which layers and with which heads, is the system's (`lingraft.systems`), not decided here.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from lingraft.artifact import Artifact, Draft, Kind
from lingraft.blocks import hashes_of, load_blocks, split
from lingraft.config import Recipe
from lingraft.encoder import Encoder, fresh_layers, mini_model
from lingraft.kept import finished, keeping, masked_judge, require_room, saved
from lingraft.models import load_primary, save_task, save_vocabulary
from lingraft.precision import forked
from lingraft.pretraining import pretraining_run
from lingraft.runs import Watch, describe, masked_lm_run, task_run
from lingraft.spread import spread
from lingraft.systems import Stage
from lingraft.tasks.kinds import Prepared, TaskKind
from lingraft.tasks.loading import kind_of, load_examples
from lingraft.text import load_text
from lingraft.tokenizer import Tokenizer
from lingraft.vectors import begin_as_static_vectors


@spread
def pretrain(
    recipe: Recipe, blocks: Path, tokenizer: Path, out: Path, watch: Watch, state: Path | None = None
) -> Artifact:
    """Train the primary with its MLM heads from nothing, in the source language (paper section 2, step 1).

    Interrupted, it goes on from its last checkpoint when it is called again, as all stages do that train.

    Args:
        recipe: with its [pretraining].
        blocks: of the source language.
        tokenizer: that they were made with.
        out: where the primary goes.
        watch: is told every point of the learning curve.
        state: where checkpoints stand while it trains; `<out>.training` if absent.

    Raises:
        TokenizerError: the tokenizer is not the source's, or the blocks were made with another.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_room(out, state)
    pieces = Tokenizer.load(tokenizer, recipe.source)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, step = recipe.pretraining, recipe.steps_over(recipe.adaptation.depth)[Stage.PRETRAIN]
    train = split(data, "train")
    with forked():
        torch.manual_seed(settings.seed)
        encoder = Encoder(recipe.primary_shape, len(pieces))
        if settings.positions == "sinusoidal":
            encoder.draw_sinusoids()
        if settings.embeddings == "static-vectors":
            begin_as_static_vectors(encoder.vocabulary, train, pieces)
    made_from = {"stage": "pretrain", "blocks": data.fingerprint, "shape": encoder.shape.model_dump(mode="json")}
    with keeping(recipe, out, state, settings, made_from) as keeper:
        if made := finished(out, Kind.PRIMARY, keeper, watch):
            return made
        judge = masked_judge(encoder, encoder, split(data, "dev"), settings)
        run = pretraining_run(recipe, step, encoder, train, keeper, judge)
        history = run.watched(f"pretrain {recipe.source}", watch)

        def fill(draft: Draft) -> None:
            draft.tensors("body", encoder.body_tensors())
            save_vocabulary(draft, encoder.vocabulary, pieces)
            describe(draft, pieces.language, hashes_of(data), settings, history, run)
            draft.facts["tokenizer_hash"] = pieces.hash
            draft.facts["details"] |= {"shape": encoder.shape.model_dump(mode="json")}

        return saved(out, Kind.PRIMARY, fill, run)


@spread
def build_mini(
    recipe: Recipe, primary: Path, blocks: Path, out: Path, watch: Watch, state: Path | None = None
) -> Artifact:
    """Train MINIPOST's fresh layers between the bottom of the primary and its MLM head (section 2, step 1b).

    Tokens pass the lowest layers without autograd: nothing there is trained, nor anything below.

    Args:
        recipe: with its [mini].
        primary: stays as it is, bit for bit.
        blocks: of the source language, made with the primary's tokenizer.
        out: where the fresh layers go.
        watch: is told every point of the learning curve.
        state: where checkpoints stand while it trains; `<out>.training` if absent.

    Raises:
        RecipeError: the recipe's system has no step 1b, or its [encoder] is not the primary's.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_room(out, state)
    settings, step = recipe.require_mini(), recipe.steps_over(recipe.adaptation.depth)[Stage.BUILD_MINI]
    source = load_primary(primary, recipe.primary_shape)
    data = load_blocks(blocks, source.tokenizer, recipe.encoder.block_tokens)
    with forked():
        torch.manual_seed(settings.seed)
        fresh = fresh_layers(source.encoder.shape, step.fresh_layers)
    depth = step.layers - step.fresh_layers
    mini = mini_model(source.encoder, depth, fresh)
    made_from = {"stage": "mini", "primary": source.fingerprint, "blocks": data.fingerprint, "depth": depth}
    with keeping(recipe, out, state, settings, made_from) as keeper:
        if made := finished(out, Kind.MINI, keeper, watch):
            return made
        judge = masked_judge(mini, mini, split(data, "dev"), settings)
        run = masked_lm_run(recipe, step, mini, split(data, "train"), settings, keeper=keeper, judge=judge)
        history = run.watched(f"build mini-model of {step.layers} layers", watch)

        def fill(draft: Draft) -> None:
            draft.tensors("layers", fresh.state_dict())
            describe(draft, recipe.source, hashes_of(data), settings, history, run)
            draft.facts["tokenizer_hash"] = source.tokenizer.hash
            draft.facts["aligned_with"] = source.fingerprint
            draft.facts["details"] |= {"shape": mini.shape.model_dump(mode="json"), "depth": depth}
            draft.facts["details"] |= {"fresh_layers": step.fresh_layers, "system": recipe.system}

        return saved(out, Kind.MINI, fill, run)


@spread
def finetune(
    recipe: Recipe,
    task: str,
    primary: Path,
    text: Path | None,
    seed: int,
    out: Path,
    watch: Watch,
    layers: int | None = None,
    state: Path | None = None,
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
        state: where checkpoints stand while it trains; `<out>.training` if absent.

    Raises:
        RecipeError: the recipe has no such task, or its [encoder] is not the primary's.
        DepthError: the primary has no MLM head at `layers`.
        TextError: examples are missing, damaged or without the labels they need.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_room(out, state)
    wanted, source = recipe.task(task), load_primary(primary, recipe.primary_shape)
    body = source.encoder if layers is None else mini_model(source.encoder, layers)
    kind, shape = kind_of(wanted), body.shape
    documents = load_text(text, recipe.source) if text else None
    examples = load_examples(wanted, "train", recipe.source, documents)
    labels = list(wanted.labels) or kind.labels(examples)
    data = kind.prepare(examples, labels, source.tokenizer, shape)
    with forked():
        torch.manual_seed(seed)
        net = kind.net(body, labels)
    dev = load_examples(wanted, "dev", recipe.source, documents)
    held_out = kind.prepare(dev, labels, source.tokenizer, shape)
    step = replace(recipe.steps_over(recipe.adaptation.depth)[Stage.FINETUNE], layers=shape.layers)
    hashes = {"text": documents.fingerprint} if documents else {}
    hashes |= {"examples": _content_hash(examples)}
    origin = hashes | (documents.manifest.data_hashes if documents else {})
    made_from = {"stage": "finetune", "primary": source.fingerprint, "layers": shape.layers, "seed": seed, **hashes}
    made_from |= {"dev": _content_hash(dev), "kind": wanted.kind, "evaluation": wanted.evaluation, "labels": labels}
    with keeping(recipe, out, state, wanted.finetuning, made_from) as keeper:
        if made := finished(out, Kind.TASK, keeper, watch):
            return made
        judge = _judge_of(net, kind, held_out, recipe.source)
        run = task_run(recipe, step, net, kind, data, wanted.finetuning, seed, keeper, judge)
        history = run.watched(f"finetune {task}, seed {seed}", watch)
        judged = kind.judge(net, held_out, recipe.source)

        def fill(draft: Draft) -> None:
            save_task(draft, net)
            describe(draft, recipe.source, origin, wanted.finetuning, history, run)
            draft.facts["tokenizer_hash"] = source.tokenizer.hash
            draft.facts["aligned_with"] = source.fingerprint
            draft.facts["details"] |= {"task": task, "settings": wanted.model_dump(mode="json"), "labels": labels}
            draft.facts["details"] |= {"seed": seed, "metric": kind.metric, "dev_score": judged.score}
            draft.facts["details"] |= {"examples": len(examples), "rows": len(data), "truncated": data.truncated}
            draft.facts["details"] |= {"shape": shape.model_dump(mode="json")}

        return saved(out, Kind.TASK, fill, run)


def _judge_of(net: nn.Module, kind: TaskKind, held_out: Prepared, language: str) -> Callable[[], float]:
    """The dev score of a task that is being learned."""

    def score() -> float:
        found = kind.judge(net, held_out, language).score
        net.train()
        return found

    return score


def _content_hash(examples: Sequence[object]) -> str:
    """SHA-256 over examples, which are records of texts, labels and numbers."""
    return hashlib.sha256("\n".join(map(repr, examples)).encode()).hexdigest()
