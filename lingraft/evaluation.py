"""Judging on text that no training saw: the source with its task, and a language with its embeddings swapped in."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from lingraft import masked_lm, precision, results
from lingraft.artifact import Artifact, Cost, Kind
from lingraft.blocks import load_blocks
from lingraft.config import Recipe
from lingraft.embeddings import swap, vocabulary_of
from lingraft.errors import ArtifactError
from lingraft.models import HISTORY_FILE, Primary, TaskModel, load_embeddings, load_primary, load_task
from lingraft.results import LanguageResult, MaskedScores, Point, SeedScores, SourceResult, TaskScores
from lingraft.stages import initial_rows, work_of
from lingraft.tasks import labelled
from lingraft.text import load_split, load_text
from lingraft.tokenizer import Tokenizer


def evaluate_source(
    recipe: Recipe, primary: Path, tasks: Sequence[Path], text: Path, blocks: Path, out: Path
) -> Artifact:
    """Judge the primary on the source language's test split: every MLM head, and the task once a finetuning seed.

    Raises:
        AlignmentError: a task was finetuned from another primary.
        RecipeError: the recipe's [encoder] is not the primary's.
        TextError: the text is in another language, or has labels that the task does not know.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    source = load_primary(primary, recipe.encoder)
    source.encoder.to(precision.device())
    data = load_blocks(blocks, source.tokenizer, recipe.encoder.block_tokens)
    models = [load_task(folder) for folder in tasks]
    result = SourceResult(
        language=recipe.source,
        primary=source.fingerprint,
        layers=source.encoder.shape.layers,
        vocabulary=len(source.tokenizer),
        masked_by_depth=masked_lm.accuracy(source.encoder, _test(data), source.encoder.depths),
        task=_judge(models, text, source.tokenizer, lambda model: model.swap_in(source)) if models else None,
        pretraining=source.manifest.cost,
        finetuning=_sum([model.manifest.cost for model in models]),
        pretraining_history=_history(primary),
        finetuning_history={_seed(model): _history(folder) for model, folder in zip(models, tasks, strict=True)},
        precision=source.manifest.details["precision"],
    )
    return _save(result, out, _hashes(source, text, data, models))


def evaluate_language(
    recipe: Recipe, primary: Path, embeddings: Path, tasks: Sequence[Path], text: Path, blocks: Path, out: Path
) -> Artifact:
    """Judge a language's embeddings on its test split: masked accuracy and zero-shot task accuracy (section 2, step 4).

    Each score is also taken with the embeddings as they were before training.

    Raises:
        AlignmentError: embeddings, tasks and primary do not belong together.
        RecipeError: the recipe's [encoder] is not the primary's.
        TextError: the text is in another language, or has labels that the task does not know.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    source, learned = load_primary(primary, recipe.encoder), load_embeddings(embeddings)
    depth = int(learned.manifest.details["depth"])
    data = load_blocks(blocks, learned.tokenizer, recipe.encoder.block_tokens)
    models = [load_task(folder) for folder in tasks]
    rows = initial_rows(recipe, source, learned.tokenizer)
    initial = vocabulary_of(rows.table_VD, rows.bias_V)
    task = None
    if models:
        task = _judge(models, text, learned.tokenizer, lambda model: model.swap_in(learned))
        before = _judge(models, text, learned.tokenizer, lambda model: swap(model.classifier.encoder, initial))
        task = task.model_copy(update={"initial": before.accuracy})
    result = LanguageResult(
        language=learned.language,
        primary=source.fingerprint,
        embeddings=learned.fingerprint,
        depth=depth,
        layers=source.encoder.shape.layers,
        vocabulary=len(learned.tokenizer),
        overlap=rows.copied,
        masked=_masked(source, lambda: source.swap_in(learned), lambda: swap(source.encoder, initial), data, depth),
        task=task,
        cost=learned.manifest.cost,
        whole_flops=_whole_flops(recipe, learned.manifest.cost, len(learned.tokenizer)),
        history=_history(embeddings),
        precision=learned.manifest.details["precision"],
    )
    hashes = _hashes(source, text, data, models) | {"embeddings": learned.fingerprint}
    return _save(result, out, hashes)


def _save(result: SourceResult | LanguageResult, out: Path, data_hashes: dict[str, str]) -> Artifact:
    facts = {"language": result.language, "aligned_with": result.primary, "data_hashes": data_hashes}
    return results.save(result, Kind.EVALUATION, out, **facts)


def _hashes(source: Primary, text: Path, blocks: Artifact, models: Sequence[TaskModel]) -> dict[str, str]:
    """What a judgement was made from."""
    tasks = {f"task-{_seed(model)}": model.fingerprint for model in models}
    read = Artifact.load(text, Kind.TEXT).fingerprint
    return {"primary": source.fingerprint, "text": read, "blocks": blocks.fingerprint, **tasks}


def _test(blocks: Artifact) -> Tensor:
    return blocks.tensors("test")["tokens_NT"]


def _masked(
    source: Primary, put_learned: Callable[[], object], put_initial: Callable[[], object], data: Artifact, depth: int
) -> MaskedScores:
    top = source.encoder.shape.layers

    def scores(put_in: Callable[[], object]) -> dict[int, float]:
        put_in()
        source.encoder.to(precision.device())
        return masked_lm.accuracy(source.encoder, _test(data), {depth, top})

    learned, initial = scores(put_learned), scores(put_initial)
    return MaskedScores(
        mini=learned[depth], primary=learned[top], mini_initial=initial[depth], primary_initial=initial[top]
    )


def _judge(
    models: Sequence[TaskModel], text: Path, tokenizer: Tokenizer, put_in: Callable[[TaskModel], object]
) -> TaskScores:
    labels = models[0].labels
    documents = load_split(load_text(text, tokenizer.language), "test")
    data = labelled.prepare(documents, labels, tokenizer, models[0].classifier.encoder.shape.block_tokens)
    counts = {}
    for model in models:
        if model.labels != labels:
            raise ArtifactError(f"task seeds differ in their labels: {labels} and {model.labels}. Finetune again.")
        put_in(model)
        counts[_seed(model)] = labelled.confusion(model.classifier.to(precision.device()), data)
    return TaskScores(
        name=models[0].manifest.details["task"],
        labels=labels,
        documents=len(data),
        truncated=data.truncated,
        majority=labelled.majority_share(next(iter(counts.values()))),
        accuracy=SeedScores(by_seed={seed: labelled.accuracy(found_CC) for seed, found_CC in counts.items()}),
        confusion=torch.stack(list(counts.values())).sum(0).tolist(),
    )


def _seed(model: TaskModel) -> int:
    return int(model.manifest.details["seed"])


def _whole_flops(recipe: Recipe, cost: Cost, vocabulary: int) -> float:
    work = work_of(recipe, recipe.adaptation, vocabulary, recipe.encoder.layers)
    return cost.steps * work.adaptation_flops()


def _history(folder: Path) -> list[Point]:
    lines = (folder / HISTORY_FILE).read_text(encoding="utf-8").splitlines()
    return [Point(**json.loads(line)) for line in lines]


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(
        steps=sum(cost.steps for cost in costs),
        tokens=sum(cost.tokens for cost in costs),
        flops=sum(cost.flops for cost in costs),
        elapsed_s=sum(cost.elapsed_s for cost in costs),
    )
