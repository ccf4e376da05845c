"""The component of the comparison of systems."""

from kfp import dsl

from components.step import step


@step
def compare(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Train and evaluate all systems in all languages, and show the page in the KFP UI; closes the tracking run."""
    from pathlib import Path

    from lingraft.steps import runner
    from lingraft.steps.compare import SystemComparison

    comparison = SystemComparison(recipe=Path(recipe.path).read_text(), out=report.path, page=page.path)
    runner.run(comparison, run.path)
