"""Once per language: depth search, adaptation, evaluation, registration; then bundle and report."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def search_depth(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    storage: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    search: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
):
    """Choose one language's mini-model depth by short adaptations at equal compute."""
    from pathlib import Path

    from lingraft.steps import language

    paths = Path(blocks.path), Path(tokenizer.path)
    scores = language.search_depth(recipe, Path(run.path), Path(primary.path), *paths, storage, Path(search.path))
    metrics.metadata.update(scores)


@step
def depths_of(recipe: str, language: str, compare: bool) -> list:
    """Depths to adapt a language over: the recipe's, the searched one, and all layers for comparison."""
    from lingraft.steps.language import depths_of

    return depths_of(recipe, language, compare)


@step
def adapt(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    depth: int,
    primary: dsl.Input[dsl.Model],
    mini: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    embeddings: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Learn one language's embeddings over the bottom layers, body frozen."""
    from pathlib import Path

    from lingraft.steps import language

    paths = [Path(item.path) for item in (primary, mini, blocks, tokenizer, embeddings)]
    metrics.metadata.update(language.adapt(recipe, Path(run.path), depth, *paths))


@step
def evaluate_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    mini: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    embeddings: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    blocks: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
):
    """Swap a language's embeddings into the primary and the tasks, and judge both on its test split."""
    from pathlib import Path

    from lingraft.steps import language

    inputs = [Path(item.path) for item in (primary, mini, tasks, embeddings, text, blocks)]
    scores, labels, matrix = language.evaluate_language(recipe, Path(run.path), *inputs, Path(evaluation.path))
    metrics.metadata.update(scores)
    confusion.log_confusion_matrix(labels, matrix)


@step
def register_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    embeddings: dsl.Input[List[dsl.Model]],  # noqa: UP006
    evaluations: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    chosen: dsl.Output[dsl.Model],
    results: dsl.Output[dsl.Artifact],
):
    """Register the embeddings of the language's own depth, and hand on all its evaluations."""
    from pathlib import Path

    from lingraft.steps import language

    folders = [Path(item.path) for item in embeddings], [Path(item.path) for item in evaluations]
    language.register_language(recipe, Path(run.path), *folders, Path(chosen.path), Path(results.path))


@step
def export_bundle(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    task: str,
    primary: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    embeddings: dsl.Input[List[dsl.Model]],  # noqa: UP006
    bundle: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Export one task body with the tables of all languages to ONNX, check parity, and register the bundle."""
    from pathlib import Path

    from lingraft.steps import language

    folders = [Path(item.path) for item in embeddings]
    paths = Path(primary.path), Path(tasks.path)
    scores = language.bundle(recipe, Path(run.path), task, *paths, folders, Path(bundle.path))
    metrics.metadata.update(scores)


@step
def write_report(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    results: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Write the report, and show its page in the KFP UI; closes the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import language

    folders = [Path(item.path) for item in results]
    html = language.report(recipe, Path(run.path), Path(evaluation.path), folders, Path(report.path))
    Path(page.path).write_text(html, encoding="utf-8")
