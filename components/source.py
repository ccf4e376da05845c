"""Once per primary: pretraining, step 1b, finetuning, evaluation, registration."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def pretrain(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train the primary with all its MLM heads in the source language."""
    from pathlib import Path

    from lingraft.steps import source

    scores = source.pretrain(recipe, Path(run.path), Path(blocks.path), Path(tokenizer.path), Path(primary.path))
    metrics.metadata.update(scores)


@step
def build_mini(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    mini: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train MINIPOST's fresh layers between the bottom of the primary and its MLM head (step 1b)."""
    from pathlib import Path

    from lingraft.steps import source

    paths = Path(primary.path), Path(blocks.path), Path(mini.path)
    metrics.metadata.update(source.build_mini(recipe, Path(run.path), *paths))


@step
def finetune(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    job: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    task: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Finetune the body on one task in the source language, embeddings frozen, with one seed: `<task>/<seed>`."""
    from pathlib import Path

    from lingraft.steps import source

    scores = source.finetune(recipe, Path(run.path), job, Path(primary.path), Path(text.path), Path(task.path))
    metrics.metadata.update(scores)


@step
def evaluate_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    blocks: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
    tasks: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
):
    """Judge the primary and its finetuned tasks on the source language's test split."""
    from pathlib import Path

    from lingraft.steps import source

    folders = [Path(task.path) for task in tasks or ()]
    paths = Path(text.path), Path(blocks.path), Path(evaluation.path)
    scores, labels, matrix = source.evaluate_source(recipe, Path(run.path), Path(primary.path), folders, *paths)
    metrics.metadata.update(scores)
    confusion.log_confusion_matrix(labels, matrix)


@step
def register_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    tasks: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
):
    """Register the primary and its tasks, and close the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import source

    folders = [Path(task.path) for task in tasks or ()]
    source.register_source(recipe, Path(run.path), Path(primary.path), folders, Path(evaluation.path))


@step
def fetch_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    tasks: dsl.Output[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    mini: dsl.Output[dsl.Model],
):
    """Bring the registered primary, its tasks, evaluation and mini-model from the registry."""
    from pathlib import Path

    from lingraft.steps import source

    paths = Path(primary.path), Path(tasks.path), Path(evaluation.path), Path(mini.path)
    source.fetch_source(recipe, Path(run.path), *paths)
