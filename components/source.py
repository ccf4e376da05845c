"""Components that run once for each primary: import or pretraining, step 1b, finetuning, evaluation, registration."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def import_model(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    task: dsl.Output[dsl.Model],
):
    """Make the primary from the recipe's pretrained model; an embedding model brings a task, too."""
    from pathlib import Path

    from lingraft.steps import source

    source.import_model(
        recipe=Path(recipe.path).read_text(), run=Path(run.path), primary=Path(primary.path), task=Path(task.path)
    )


@step
def pretrain(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train the primary with all its MLM heads in the source language."""
    from pathlib import Path

    from lingraft.jobs.training import PretrainingJob
    from lingraft.steps import runner

    job = PretrainingJob(
        recipe=Path(recipe.path).read_text(), blocks=blocks.path, tokenizer=tokenizer.path, out=primary.path
    )
    metrics.metadata.update(runner.run(job, run.path))


@step
def build_vectors(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    vectors: dsl.Output[dsl.Artifact],
):
    """Compute static vectors of the source language's pieces, which new languages are aligned with."""
    from pathlib import Path

    from lingraft.jobs.training import VectorsJob
    from lingraft.steps import runner

    job = VectorsJob(
        recipe=Path(recipe.path).read_text(), blocks=blocks.path, tokenizer=tokenizer.path, out=vectors.path
    )
    runner.run(job, run.path)


@step
def build_mini(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    mini: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train MINIPOST's fresh layers between the bottom of the primary and its MLM head (step 1b)."""
    from pathlib import Path

    from lingraft.jobs.training import MiniBuildingJob
    from lingraft.steps import runner

    job = MiniBuildingJob.registered(
        recipe=Path(recipe.path).read_text(), primary=primary.path, blocks=blocks.path, out=mini.path
    )
    metrics.metadata.update(runner.run(job, run.path))


@step
def finetune(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    job: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    task: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Finetune the body on one task in the source language, embeddings frozen, with one seed: `<task>/<seed>`."""
    from pathlib import Path

    from lingraft.jobs.training import FinetuningJob
    from lingraft.steps import runner

    wanted = FinetuningJob.of_id(
        job, recipe=Path(recipe.path).read_text(), primary=primary.path, text=text.path, out=task.path
    )
    metrics.metadata.update(runner.run(wanted, run.path))


@step
def evaluate_source(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    blocks: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
    tasks: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
    imported: dsl.Input[dsl.Model] = None,
):
    """Judge the primary, its finetuned tasks and an imported one on the source language's test split."""
    from pathlib import Path

    from lingraft.jobs.evaluation import SourceEvaluationJob
    from lingraft.steps import runner

    job = SourceEvaluationJob(
        recipe=Path(recipe.path).read_text(),
        primary=primary.path,
        tasks=[task.path for task in (*(tasks or ()), *filter(None, [imported]))],
        text=text.path,
        blocks=blocks.path,
        out=evaluation.path,
    )
    scores, labels, matrix = runner.run(job, run.path)
    metrics.metadata.update(scores)
    confusion.log_confusion_matrix(labels, matrix)


@step
def register_source(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    tasks: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
    imported: dsl.Input[dsl.Model] = None,
    vectors: dsl.Input[dsl.Artifact] = None,
):
    """Register the primary, its tasks and static vectors, and close the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import source

    source.register_source(
        recipe=Path(recipe.path).read_text(),
        run=Path(run.path),
        primary=Path(primary.path),
        tasks=[Path(task.path) for task in tasks or ()],
        evaluation=Path(evaluation.path),
        vectors=[Path(each.path) for each in filter(None, [vectors])],
        imported=next((Path(each.path) for each in filter(None, [imported])), None),
    )


@step
def fetch_source(
    recipe: dsl.Input[dsl.Artifact],
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

    source.fetch_source(
        recipe=Path(recipe.path).read_text(),
        run=Path(run.path),
        primary=Path(primary.path),
        tasks=Path(tasks.path),
        evaluation=Path(evaluation.path),
        mini=Path(mini.path),
        vectors=Path(vectors.path),
    )
