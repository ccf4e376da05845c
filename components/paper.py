"""The paper's comparison: every step leaves either what it makes, or a folder that says why it failed."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def prepare_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    language: str,
    text: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
):
    """Read a language's text, train its tokenizer, and pack its blocks."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (text, tokenizer, blocks)]
    paper.prepare_language(recipe, Path(run.path), language, *folders)


@step
def pretrain(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train one of the comparison's primaries in the source language."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (blocks, tokenizer, primary)]
    metrics.metadata.update(paper.pretrain(recipe, Path(run.path), name, *folders))


@step
def build_mini(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    mini: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train the fresh layers of an arm that has a step 1b."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (primary, blocks, mini)]
    metrics.metadata.update(paper.build_mini(recipe, Path(run.path), arm, *folders))


@step
def finetune(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    job: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    task: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Finetune one of a primary's models on one task in the source language, with one seed."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (primary, text, task)]
    metrics.metadata.update(paper.finetune(recipe, Path(run.path), name, job, *folders))


@step
def judge_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tasks: dsl.Output[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    finetuned: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
):
    """Gather a primary's finetunings, and judge them in the source language."""
    from pathlib import Path

    from lingraft.steps import paper

    made = [Path(item.path) for item in finetuned or ()]
    folders = [Path(item.path) for item in (primary, text, tokenizer, blocks, tasks, evaluation)]
    metrics.metadata.update(paper.judge_source(recipe, Path(run.path), name, made, *folders))


@step
def adapt(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Learn a language's embeddings over a cut of the primary, and keep them along the way."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (primary, blocks, tokenizer, curve)]
    metrics.metadata.update(paper.adapt(recipe, Path(run.path), arm, language, *folders))


@step
def adapt_over_mini(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    mini: dsl.Input[dsl.Model],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Learn a language's embeddings over the mini-model of step 1b, and keep them along the way."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (primary, blocks, tokenizer, curve, mini)]
    metrics.metadata.update(paper.adapt(recipe, Path(run.path), arm, language, *folders))


@step
def judge_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    curve: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
):
    """Swap every checkpoint of a language into the primary and all finetuned bodies, and judge them."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (primary, tasks, curve, text, tokenizer, blocks, evaluation)]
    metrics.metadata.update(paper.judge_language(recipe, Path(run.path), arm, language, *folders))


@step
def gather(
    before: dsl.Input[dsl.Artifact],
    source: dsl.Input[dsl.Artifact],
    judged: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    results: dsl.Output[dsl.Artifact],
):
    """Put one arm's results, in the source language and all others, beside those of the arms before it."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (before, source, *judged)]
    paper.gather(folders, Path(results.path))


@step
def write_report(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    results: dsl.Input[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Write tables and figures, and show their page in the KFP UI; closes the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import paper

    html = paper.report(recipe, Path(run.path), Path(results.path), Path(report.path))
    Path(page.path).write_text(html, encoding="utf-8")
