"""Components that run once for each language: adaptation, evaluation, registration; then bundle and report."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def depths_of(
    recipe: dsl.Input[dsl.Artifact], language: str, compare: bool, depths: dsl.Output[dsl.Artifact]
) -> list[int]:
    """Depths to adapt a language over: the recipe's, the searched one, and all layers for comparison."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.language import DepthChoice

    choice = DepthChoice(recipe=Path(recipe.path).read_text(), language=language, compare=compare, out=depths.path)
    return runner.run(choice, isolated=True)


@step
def initialise(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    vectors: dsl.Input[dsl.Artifact],
    initial: dsl.Output[dsl.Model],
    isolated: bool = False,
):
    """Write one language's embeddings as they are before training, for all that starts from them."""
    from pathlib import Path

    from lingraft.jobs.training import InitialisationJob
    from lingraft.steps import runner

    job = InitialisationJob(
        recipe=Path(recipe.path).read_text(),
        primary=primary.path,
        tokenizer=tokenizer.path,
        blocks=blocks.path,
        source_vectors=vectors.path,
        out=initial.path,
    )
    runner.run(job, run.path, isolated)


@step
def adapt(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    depth: int,
    primary: dsl.Input[dsl.Model],
    mini: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    initial: dsl.Input[dsl.Model],
    depths: dsl.Input[dsl.Artifact],
    embeddings: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Learn one language's embeddings over the bottom layers, body frozen."""
    from pathlib import Path

    from lingraft.jobs.training import AdaptationJob
    from lingraft.steps import runner

    job = AdaptationJob(
        recipe=Path(recipe.path).read_text(),
        depth=depth,
        primary=primary.path,
        mini=mini.path,
        blocks=blocks.path,
        tokenizer=tokenizer.path,
        initial=initial.path,
        out=embeddings.path,
    )
    metrics.metadata.update(runner.run(job, run.path, isolated=True, after=[depths.path]))


@step
def evaluate_language(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    mini: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    embeddings: dsl.Input[dsl.Model],
    initial: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    blocks: dsl.Input[dsl.Dataset],
    source_evaluation: dsl.Input[dsl.Artifact],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
):
    """Swap a language's embeddings into the primary and the tasks, and judge both on its test split."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.language import EvaluateLanguage

    job = EvaluateLanguage(
        recipe=Path(recipe.path).read_text(),
        primary=primary.path,
        mini=mini.path,
        task_folder=tasks.path,
        embeddings=embeddings.path,
        initial=initial.path,
        text=text.path,
        blocks=blocks.path,
        source_evaluation=source_evaluation.path,
        out=evaluation.path,
    )
    scores, labels, matrix = runner.run(job, run.path, isolated=True)
    metrics.metadata.update(scores)
    confusion.log_confusion_matrix(labels, matrix)


@step
def register_language(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    language: str,
    tasks: dsl.Input[dsl.Model],
    embeddings: dsl.Input[List[dsl.Model]],  # noqa: UP006
    evaluations: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    chosen: dsl.Output[dsl.Model],
    results: dsl.Output[dsl.Artifact],
    outcome: dsl.Output[dsl.Artifact],
):
    """Register the embeddings of the language's own depth, promote them if the gate lets them, and say what became."""
    from pathlib import Path

    from lingraft.artifacts.failures import write_outcome
    from lingraft.steps import runner
    from lingraft.steps.language import LanguageRegistration

    registration = LanguageRegistration(
        recipe=Path(recipe.path).read_text(),
        tasks=tasks.path,
        embeddings=[item.path for item in embeddings],
        evaluations=[item.path for item in evaluations],
        chosen=chosen.path,
        results=results.path,
    )
    refused = runner.run(registration, run.path, isolated=True)
    write_outcome(language, Path(results.path), Path(outcome.path), refused)


@step
def export_bundle(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    task: str,
    primary: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    embeddings: dsl.Input[List[dsl.Model]],  # noqa: UP006
    drop_languages: list,
    new_primary: bool,
    new_labels: bool,
    bundle: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Export one body with the champion's languages and this run's, and promote the bundle if the gate lets it pass."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.language import BundleExport

    export = BundleExport(
        recipe=Path(recipe.path).read_text(),
        task=task,
        primary=primary.path,
        tasks=tasks.path,
        embeddings=[item.path for item in embeddings],
        drop_languages=drop_languages,
        new_primary=new_primary,
        new_labels=new_labels,
        out=bundle.path,
    )
    metrics.metadata.update(runner.run(export, run.path))


@step
def write_report(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    results: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    outcomes: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Write the report of all languages that succeeded, with what became of the others, and show its page."""
    from pathlib import Path

    from lingraft.steps import language

    html = language.report(
        recipe=Path(recipe.path).read_text(),
        run=Path(run.path),
        evaluation=Path(evaluation.path),
        results=[Path(item.path) for item in results],
        outcomes=[Path(item.path) for item in outcomes],
        out=Path(report.path),
    )
    Path(page.path).write_text(html, encoding="utf-8")


@step
def require_languages(run: dsl.Input[dsl.Artifact], outcomes: dsl.Input[List[dsl.Artifact]]):  # noqa: UP006
    """Fail with every language's reason if any failed; closes the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import language

    language.require_languages(Path(run.path), [Path(item.path) for item in outcomes])
