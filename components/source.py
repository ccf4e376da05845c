"""Once per primary: pretraining, finetuning, evaluation, registration."""

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

    from lingraft import steps

    scores = steps.pretrain(recipe, Path(run.path), Path(blocks.path), Path(tokenizer.path), Path(primary.path))
    metrics.metadata.update(scores)


@step
def finetune(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    seed: int,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    task: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Finetune the body on the task in the source language, embeddings frozen, with one seed."""
    from pathlib import Path

    from lingraft import steps

    scores = steps.finetune(recipe, Path(run.path), seed, Path(primary.path), Path(text.path), Path(task.path))
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

    from lingraft import steps

    folders = [Path(task.path) for task in tasks or ()]
    paths = Path(text.path), Path(blocks.path), Path(evaluation.path)
    scores, labels, matrix = steps.evaluate_source(recipe, Path(run.path), Path(primary.path), folders, *paths)
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

    from lingraft import steps

    folders = [Path(task.path) for task in tasks or ()]
    steps.register_source(recipe, Path(run.path), Path(primary.path), folders, Path(evaluation.path))


@step
def fetch_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    tasks: dsl.Output[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
):
    """Bring the registered primary, its tasks and its evaluation from the registry."""
    from pathlib import Path

    from lingraft import steps

    steps.fetch_source(recipe, Path(run.path), Path(primary.path), Path(tasks.path), Path(evaluation.path))
