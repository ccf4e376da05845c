"""Components of a depth search for a language: workers that try depths in parallel, then the conclusion."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def try_depths(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    worker: int,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    source_blocks: dsl.Input[dsl.Artifact],
    initial: dsl.Input[dsl.Model],
    source_evaluation: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    worked: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
):
    """Try depths, as one of several workers that share a storage, until all have been tried."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.search import DepthTrials

    trials = DepthTrials(
        recipe=Path(recipe.path).read_text(),
        worker=worker,
        primary=primary.path,
        blocks=blocks.path,
        tokenizer=tokenizer.path,
        source_blocks=source_blocks.path,
        initial=initial.path,
        source_evaluation=source_evaluation.path,
        text=text.path,
        out=worked.path,
    )
    metrics.metadata.update(runner.run(trials, run.path))


@step
def search_depth(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    source_blocks: dsl.Input[dsl.Artifact],
    initial: dsl.Input[dsl.Model],
    source_evaluation: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    worked: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    search: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.Markdown],
):
    """Choose one language's mini-model depth from trials at equal compute, and show why."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.search import DepthSearch

    conclusion = DepthSearch(
        recipe=Path(recipe.path).read_text(),
        primary=primary.path,
        blocks=blocks.path,
        tokenizer=tokenizer.path,
        source_blocks=source_blocks.path,
        initial=initial.path,
        source_evaluation=source_evaluation.path,
        text=text.path,
        worked=[item.path for item in worked],
        out=search.path,
    )
    metrics.metadata.update(runner.run(conclusion, run.path))
    Path(page.path).write_text((Path(search.path) / "search.md").read_text(encoding="utf-8"), encoding="utf-8")
