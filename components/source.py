"""Components that run once for each primary: pretraining, step 1b, finetuning, evaluation, registration."""

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
    from lingraft.steps.launch import launcher

    inputs = {"run": run.path, "blocks_folder": blocks.path, "tokenizer_folder": tokenizer.path}
    metrics.metadata.update(launcher.run("source.pretrain", inputs, {"out": primary.path}, recipe=recipe))


@step
def build_vectors(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    vectors: dsl.Output[dsl.Artifact],
):
    """Compute static vectors of the source language's pieces, which new languages are aligned with."""
    from lingraft.steps.launch import launcher

    inputs = {"run": run.path, "blocks_folder": blocks.path, "tokenizer_folder": tokenizer.path}
    launcher.run("source.build_vectors", inputs, {"out": vectors.path}, recipe=recipe)


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
    from lingraft.steps.launch import launcher

    inputs = {"run": run.path, "primary": primary.path, "blocks_folder": blocks.path}
    metrics.metadata.update(launcher.run("source.build_mini", inputs, {"out": mini.path}, recipe=recipe))


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
    from lingraft.steps.launch import launcher

    inputs = {"run": run.path, "primary": primary.path, "text_folder": text.path}
    metrics.metadata.update(launcher.run("source.finetune", inputs, {"out": task.path}, recipe=recipe, job=job))


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
    from lingraft.steps.launch import launcher

    finetuned = [task.path for task in tasks or ()]
    inputs = {"run": run.path, "primary": primary.path, "text_folder": text.path, "blocks_folder": blocks.path}
    outputs = {"out": evaluation.path}
    found = launcher.run("source.evaluate_source", inputs | {"tasks": finetuned}, outputs, recipe=recipe)
    scores, labels, matrix = found
    metrics.metadata.update(scores)
    confusion.log_confusion_matrix(labels, matrix)


@step
def register_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    tasks: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
    vectors: dsl.Input[dsl.Artifact] = None,
):
    """Register the primary, its tasks and static vectors, and close the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import source

    folders = [Path(task.path) for task in tasks or ()]
    kept = [Path(each.path) for each in filter(None, [vectors])]
    source.register_source(recipe, Path(run.path), Path(primary.path), folders, Path(evaluation.path), kept)


@step
def fetch_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    tasks: dsl.Output[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    mini: dsl.Output[dsl.Model],
    vectors: dsl.Output[dsl.Artifact],
):
    """Bring the registered primary, its tasks, evaluation, mini-model and static vectors from the registry."""
    from pathlib import Path

    from lingraft.steps import source

    outputs = primary, tasks, evaluation, mini, vectors
    source.fetch_source(recipe, Path(run.path), *(Path(output.path) for output in outputs))
