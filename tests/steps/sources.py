"""The source pipeline's steps in this process, for tests of what follows on it."""

from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.training import MiniBuildingJob
from lingraft.steps import data, source
from lingraft.steps.run_job import run_job
from tests.workshop import Workshop


def register(shop: Workshop, recipe: Recipe, primary: Path, folder: Path) -> None:
    """Make a primary, and its mini-model where the recipe has one, champions of the store; without tasks.

    Args:
        shop: of the text.
        recipe: of the project.
        primary: trained by it.
        folder: of what else is made, which is new.
    """
    folder.mkdir()
    raw, run, blocks = recipe.to_json(), folder / "run", shop.blocks["en"]
    data.open_run(raw, "source", run)
    if recipe.builds_mini:
        run_job(MiniBuildingJob.registered(raw, primary, blocks, folder / "mini"), run)
    judging = SourceEvaluationJob(
        recipe=raw, primary=primary, text=shop.texts["en"], blocks=blocks, out=folder / "evaluation"
    )
    source.evaluate_source(judging, run)
    source.register_source(raw, run, primary, [], folder / "evaluation")
