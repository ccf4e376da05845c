"""Components of the paper's comparison: every step writes its output, or the reason why it failed."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def prepare_language(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    language: str,
    text: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
):
    """Read a language's text, train its tokenizer, and pack its blocks."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.paper import LanguagePreparation

    preparation = LanguagePreparation(
        recipe=Path(recipe.path).read_text(),
        language=language,
        text=text.path,
        tokenizer=tokenizer.path,
        blocks=blocks.path,
    )
    runner.run(preparation, run.path, isolated=True)


@step
def pretrain(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    name: str,
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train one of the comparison's primaries in the source language."""
    from pathlib import Path

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    job = jobs.pretraining(
        primary=jobs.planned_primary(Path(recipe.path).read_text(), name),
        blocks=Path(blocks.path),
        tokenizer=Path(tokenizer.path),
        out=Path(primary.path),
    )
    metrics.metadata.update(runner.run(job, run.path, isolated=True))


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
        recipe=Path(recipe.path).read_text(),
        blocks=blocks.path,
        tokenizer=tokenizer.path,
        out=vectors.path,
        records_failure=True,
    )
    runner.run(job, run.path, isolated=True)


@step
def build_mini(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    arm: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    mini: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train the fresh layers of an arm that has a step 1b."""
    from pathlib import Path

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    job = jobs.mini_building(
        arm=jobs.planned_arm(Path(recipe.path).read_text(), arm),
        primary=Path(primary.path),
        blocks=Path(blocks.path),
        out=Path(mini.path),
    )
    metrics.metadata.update(runner.run(job, run.path, isolated=True))


@step
def finetune(
    recipe: dsl.Input[dsl.Artifact],
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

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    planned = jobs.planned_primary(Path(recipe.path).read_text(), name)
    wanted = jobs.finetuning(
        planned=planned,
        wanted=planned.finetuning(job),
        primary=Path(primary.path),
        text=Path(text.path),
        tasks=Path(task.path),
    )
    metrics.metadata.update(runner.run(wanted, run.path, isolated=True))


@step
def judge_source(
    recipe: dsl.Input[dsl.Artifact],
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

    from lingraft.steps import runner
    from lingraft.steps.paper import SourceJudging

    judging = SourceJudging(
        recipe=Path(recipe.path).read_text(),
        name=name,
        primary=primary.path,
        finetuned=[item.path for item in finetuned or ()],
        text=text.path,
        tokenizer=tokenizer.path,
        blocks=blocks.path,
        tasks=tasks.path,
        out=evaluation.path,
    )
    metrics.metadata.update(runner.run(judging, run.path, isolated=True))


@step
def initialise(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    name: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    vectors: dsl.Input[dsl.Artifact],
    initial: dsl.Output[dsl.Model],
):
    """Write a language's embeddings at update 0 for one of the comparison's primaries."""
    from pathlib import Path

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    job = jobs.initialisation(
        planned=jobs.planned_primary(Path(recipe.path).read_text(), name),
        language=language,
        primary=Path(primary.path),
        blocks=Path(blocks.path),
        tokenizer=Path(tokenizer.path),
        vectors=Path(vectors.path),
        out=Path(initial.path),
    )
    runner.run(job, run.path, isolated=True)


@step
def adapt(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    initial: dsl.Input[dsl.Model] = None,
):
    """Learn a language's embeddings over a cut of the primary, and keep them along the way."""
    from pathlib import Path

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    job = jobs.adaptation(
        arm=jobs.planned_arm(Path(recipe.path).read_text(), arm),
        language=language,
        primary=Path(primary.path),
        blocks=Path(blocks.path),
        tokenizer=Path(tokenizer.path),
        initial=[Path(start.path) for start in filter(None, [initial])],
        out=Path(curve.path),
    )
    metrics.metadata.update(runner.run(job, run.path, isolated=True))


@step
def adapt_over_mini(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    mini: dsl.Input[dsl.Model],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    initial: dsl.Input[dsl.Model] = None,
):
    """Learn a language's embeddings over the mini-model of step 1b, and keep them along the way."""
    from pathlib import Path

    from lingraft.comparison import jobs
    from lingraft.steps import runner

    job = jobs.adaptation(
        arm=jobs.planned_arm(Path(recipe.path).read_text(), arm),
        language=language,
        primary=Path(primary.path),
        blocks=Path(blocks.path),
        tokenizer=Path(tokenizer.path),
        mini=Path(mini.path),
        initial=[Path(start.path) for start in filter(None, [initial])],
        out=Path(curve.path),
    )
    metrics.metadata.update(runner.run(job, run.path, isolated=True))


@step
def judge_language(
    recipe: dsl.Input[dsl.Artifact],
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

    from lingraft.steps import runner
    from lingraft.steps.paper import LanguageJudging

    judging = LanguageJudging(
        recipe=Path(recipe.path).read_text(),
        arm=arm,
        language=language,
        primary=primary.path,
        tasks=tasks.path,
        curve=curve.path,
        text=text.path,
        tokenizer=tokenizer.path,
        blocks=blocks.path,
        out=evaluation.path,
    )
    metrics.metadata.update(runner.run(judging, run.path, isolated=True))


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
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    results: dsl.Input[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Write tables and figures, and show their page in the KFP UI; closes the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import paper

    html = paper.report(Path(recipe.path).read_text(), Path(run.path), Path(results.path), Path(report.path))
    Path(page.path).write_text(html, encoding="utf-8")
