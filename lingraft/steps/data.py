"""Steps that run before everything else: inputs check, tracking run, and a language's text."""

from collections.abc import Sequence
from pathlib import Path

from lingraft import preflight, tracking
from lingraft.artifacts.failures import format_error
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import NoStoreError
from lingraft.jobs.data import TextJob
from lingraft.tracking.bundles import require_droppable


def check_inputs(
    recipe: str, file: str, pipeline: str, languages: Sequence[str], drop_languages: Sequence[str], out: Path
) -> dict[str, str]:
    """Check text, labels, task examples, pairs and outputs before anything is computed, and write the recipe to a file.

    In pipelines whose languages are independent, a language with a problem fails alone, and the log lists all problems.

    Args:
        recipe: recipe as JSON.
        file: name of the file that the recipe comes from.
        pipeline: name of the pipeline.
        languages: languages to check; all of the recipe's if empty, as for `source`, which the others follow.
        drop_languages: languages that the pipeline removes from production.
        out: file for the recipe, as indented JSON.

    Returns:
        Name of the recipe's file, and the recipe's digest, for pages that show the file `out`.

    Raises:
        NotReadyError: the message lists everything that is wrong.
        PromotionError: a language to drop is neither in production nor among `languages`.
    """
    settings = Recipe.parse(recipe)
    write_text(out, settings.model_dump_json(indent=2))
    if drop_languages:
        require_droppable(tracking.connect(), settings, languages, drop_languages)
    try:
        if pipeline in ("language", "paper"):
            preflight.require_some_ready(settings, languages, source=pipeline == "paper")
        else:
            preflight.require_ready(settings, languages=languages or None)
    except preflight.NotReadyError as error:
        # A local run shows only one line of a step's error.
        raise preflight.NotReadyError(format_error(error)) from error
    return {"file": file, "digest": settings.digest()}


def open_run(recipe: str, pipeline: str, out: Path, kfp_run: str = "") -> None:
    """Create the tracking run of a pipeline, and write its id to the file `out` for the other steps.

    Args:
        recipe: recipe as JSON.
        pipeline: name of the pipeline.
        out: file for the id.
        kfp_run: id of the pipeline's run in Kubeflow Pipelines, by which `close_run` finds the tracking run.
    """
    write_text(out, tracking.open_run(Recipe.parse(recipe), pipeline, kfp_run))


def close_run(project: str, kfp_run: str) -> None:
    """End the tracking runs that the steps of a pipeline run have left open, as when the run was aborted.

    Args:
        project: name of the recipe.
        kfp_run: id of the pipeline's run in Kubeflow Pipelines.
    """
    try:
        abandoned = tracking.close_abandoned(project, kfp_run)
    except NoStoreError:  # the pipeline ended before it had one
        return
    for ended in abandoned:
        say(f"Tracking run {ended} is marked as killed: its pipeline run ended without it.")


def prepare_text(job: TextJob, run: Path) -> None:
    """Check one language, then read, split and write its text; it is read each time, since it may have grown."""
    preflight.require_ready(job.recipe, languages=[job.tag])
    with tracking.stage(run.read_text(), job.name) as stage:
        stage.record(job.make(stage.watch), {})
