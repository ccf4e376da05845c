"""Evaluation of finetuned tasks with a language's embeddings swapped in (paper section 2, step 4)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.config.recipe import Recipe
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.stages.results import SeedScores, TaskScores
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.kinds import TaskEvaluation
from lingraft.tasks.loading import load_examples
from lingraft.tasks.model import TaskModel, load_task
from lingraft.training import precision

SwapIn = Callable[[TaskModel], object]
"""Gives a task's body the embeddings to judge."""


class EvaluatedTask(NamedTuple):
    """A task's scores, and what they are made of."""

    scores: TaskScores
    tallies: dict[int, ItemCounts]
    """Counts by finetuning seed, of the same examples in the same order."""


def load_tasks(folders: Sequence[Path]) -> dict[str, list[TaskModel]]:
    """Open finetuned tasks, by name, each with its seeds.

    Raises:
        ArtifactError: one is not a task or is damaged, or the seeds of a task differ in their labels.
    """
    by_name: dict[str, list[TaskModel]] = {}
    for model in map(load_task, folders):
        by_name.setdefault(model.name, []).append(model)
    for name, models in by_name.items():
        if any(model.labels != models[0].labels for model in models):
            raise ArtifactError(
                f"seeds of task {name!r} differ in labels: {[m.labels for m in models]}. Finetune again."
            )
    return by_name


def evaluate_tasks(
    recipe: Recipe, tasks: dict[str, list[TaskModel]], text: Artifact | None, tokenizer: Tokenizer, put_in: SwapIn
) -> tuple[EvaluatedTask, ...]:
    """Score every task that has test examples in the tokenizer's language.

    Raises:
        RecipeError: the recipe does not have one of the tasks.
        TextError: test examples are missing or damaged, or have labels that the task does not know.
    """
    language = tokenizer.language
    covered = [name for name in tasks if recipe.task(name).covers(language)]
    return tuple(evaluate_task(recipe, tasks[name], text, tokenizer, put_in) for name in covered)


def evaluate_task(
    recipe: Recipe, seeds: Sequence[TaskModel], text: Artifact | None, tokenizer: Tokenizer, put_in: SwapIn
) -> EvaluatedTask:
    """Score one task, each of its seeds, on its test examples in the tokenizer's language.

    Raises:
        TextError: test examples are missing or damaged, or have labels that the task does not know.
    """
    first = seeds[0]
    examples = load_examples(recipe.task(first.name), "test", tokenizer.language, text)
    data = first.kind.prepare(examples, first.labels, tokenizer, first.shape)
    judged: dict[int, TaskEvaluation] = {}
    for model in seeds:
        put_in(model)
        judged[model.seed] = model.kind.judge(model.net.to(precision.device()), data, tokenizer.language)
    found = next(iter(judged.values()))
    others = {name: SeedScores(by_seed={s: one.others[name] for s, one in judged.items()}) for name in found.others}
    matrices = [one.confusion_CC for one in judged.values() if one.confusion_CC is not None]
    scores = TaskScores(
        name=first.name,
        metric=first.kind.metric,
        labels=first.labels,
        examples=len(examples),
        truncated=data.truncated,
        baseline=found.baseline,
        score=SeedScores(by_seed={seed: one.score for seed, one in judged.items()}),
        others=others,
        confusion=torch.stack(matrices).sum(0).tolist() if matrices else [],
    )
    return EvaluatedTask(scores, {seed: one.tally for seed, one in judged.items()})
