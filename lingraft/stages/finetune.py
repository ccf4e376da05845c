"""Finetuning the body on a task in the source language (paper section 2, step 3)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft import ranks
from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, TrainedPart
from lingraft.data.text import load_text
from lingraft.errors import RecipeError
from lingraft.model.encoder import freeze_except, mini_model
from lingraft.model.loading import load_primary
from lingraft.tasks.examples import load_examples
from lingraft.tasks.finetuned import save_task
from lingraft.tasks.kinds import kind_of
from lingraft.training.batches import task_stream
from lingraft.training.distributed.launch import distributed
from lingraft.training.precision import preserve_rng
from lingraft.training.run import record_training, task_plan, training_run
from lingraft.training.schedule import MetricsCallback
from lingraft.training.stage_output import already_done, require_empty, resumable, save_result


@distributed
def finetune(
    recipe: Recipe,
    task: str,
    primary: Path,
    text: Path | None,
    seed: int,
    out: Path,
    watch: MetricsCallback,
    layers: int | None = None,
) -> Artifact:
    """Finetune the body on a task in the source language, token table frozen (section 2, step 3).

    Examples are as long as the recipe's blocks at most. With `layers` it is the mini-model of so many bottom layers
    that is finetuned (the paper's table 5). `text` is only read where the task's kind is 'documents'.

    Raises:
        RecipeError: the recipe has no such task, its [encoder] is not the primary's, or several processes finetune a
            task of kind 'retrieval'.
        DepthError: the primary has no MLM head at `layers`.
        TextError: examples are missing, damaged or without the labels they need.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_empty(out)
    wanted, source = recipe.task(task), load_primary(primary, recipe.primary_shape)
    if wanted.kind == "retrieval" and ranks.world_size() > 1:
        raise RecipeError(
            f"task {task!r} of kind 'retrieval' is finetuned by one process, whose batch has all passages to choose "
            f"from, and there are {ranks.world_size()}. Leave --processes out."
        )
    body = source.encoder if layers is None else mini_model(source.encoder, layers)
    kind, shape, settings = kind_of(wanted), body.shape, wanted.finetuning
    inputs = shape.within(recipe.encoder.block_tokens)
    documents = load_text(text, recipe.source.language) if text else None
    examples = load_examples(wanted, "train", recipe.source.language, documents)
    labels = list(wanted.labels) or kind.labels(examples)
    data = kind.prepare(examples, labels, source.tokenizer, inputs)
    with preserve_rng():
        torch.manual_seed(seed)
        net = kind.net(body, labels)
    dev = load_examples(wanted, "dev", recipe.source.language, documents)
    held_out = kind.prepare(dev, labels, source.tokenizer, inputs)
    part = TrainedPart.HEAD if settings.frozen_body else TrainedPart.BODY
    step = replace(recipe.steps_over(recipe.adaptation.depth)[Stage.FINETUNE], layers=shape.layers, trained=part)
    hashes = {"text": documents.fingerprint} if documents else {}
    hashes |= {"examples": _content_hash(examples)}
    origin = hashes | (documents.manifest.data_hashes if documents else {})
    made_from = {"stage": "finetune", "primary": source.fingerprint, "layers": shape.layers, "seed": seed, **hashes}
    made_from |= {"block_tokens": inputs.block_tokens}
    made_from |= {"dev": _content_hash(dev), "kind": wanted.kind, "evaluation": wanted.evaluation, "labels": labels}
    made_from |= {"retrieval": wanted.retrieval.model_dump(mode="json")} if wanted.retrieval else {}
    trained = freeze_except(net, head_parameters(net) if settings.frozen_body else body_parameters(net))
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.TASK, checkpointer, watch):
            return made
        run = training_run(
            recipe=recipe,
            plan=task_plan(recipe=recipe, step=step, net=net, kind=kind, data=data, settings=settings, seed=seed),
            trained=trained,
            stream=task_stream(data, settings.batch_examples, seed, settings.group_by_length),
            checkpointer=checkpointer,
        )
        with run.watched(f"finetune {task}, seed {seed}", watch) as report:
            for point in run.points:
                report(point)
        evaluated = kind.judge(net, held_out, recipe.source.language)

        def fill(draft: Draft) -> None:
            save_task(draft, net)
            record_training(draft, recipe.source.language, origin, settings, run)
            draft.facts["tokenizer_hash"] = source.tokenizer.hash
            draft.facts["aligned_with"] = source.fingerprint
            draft.facts["details"] |= {
                "task": task,
                "settings": wanted.model_dump(mode="json"),
                "labels": labels,
                "seed": seed,
                "metric": kind.metric,
                "dev_score": evaluated.score,
                "examples": len(examples),
                "rows": len(data),
                "truncated": data.truncated,
                "shape": shape.model_dump(mode="json"),
            }

        return save_result(out, Kind.TASK, fill, checkpointer)


def body_parameters(net: Any) -> list[nn.Parameter]:
    """Return what finetuning trains: body and task head, without the vocabulary and the MLM heads.

    Positions and LayerNorms train with the body, except those that only MLM heads read. The vocabulary does not, or
    other languages' would no longer fit.
    """
    encoder, top = net.encoder, str(net.encoder.shape.layers)
    fixed = {*encoder.vocabulary.parameters(), *encoder.heads.parameters()}
    fixed |= {each for depth, norm in encoder.final_norms.items() if depth != top for each in norm.parameters()}
    return [parameter for parameter in net.parameters() if parameter not in fixed]


def head_parameters(net: Any) -> list[nn.Parameter]:
    """Return what is trained over a frozen body: the task's head."""
    body = {*net.encoder.parameters()}
    return [parameter for parameter in net.parameters() if parameter not in body]


def _content_hash(examples: Sequence[object]) -> str:
    """SHA-256 over examples, which are records of texts, labels and numbers."""
    return hashlib.sha256("\n".join(map(repr, examples)).encode()).hexdigest()
