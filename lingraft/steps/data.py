"""Steps that run before everything else: inputs check, tracking run, and a language's text."""

from collections.abc import Sequence
from pathlib import Path

from lingraft import preflight, tracking
from lingraft.artifacts.failures import format_error
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.jobs.job import TextJob
from lingraft.tracking.promotion.renewal import require_droppable


def check_inputs(recipe: str, pipeline: str, languages: Sequence[str], drop_languages: Sequence[str] = ()) -> None:
    """Check text, labels, task examples, sizes and outputs before anything is computed.

    In pipelines whose languages are independent, a language with a problem fails alone, and the log lists all problems.

    Args:
        recipe: recipe as JSON.
        pipeline: name of the pipeline.
        languages: languages to check; all of the recipe's if empty, as for `source`, which the others follow.
        drop_languages: languages that the pipeline removes from production.

    Raises:
        NotReadyError: the message lists everything that is wrong.
        PromotionError: a language to drop is neither in production nor among `languages`.
    """
    settings = Recipe.parse(recipe)
    if drop_languages:
        with tracking.retrying_client() as client:
            require_droppable(client, settings, languages, drop_languages)
    try:
        if pipeline in ("language", "paper"):
            preflight.require_some_ready(settings, languages, source=pipeline == "paper")
        else:
            preflight.require_ready(settings, languages=languages or None)
    except preflight.NotReadyError as error:
        # A local run shows only one line of a step's error.
        raise preflight.NotReadyError(format_error(error)) from error


def open_run(recipe: str, pipeline: str, out: Path) -> None:
    """Create the tracking run of a pipeline, and write its id to the file `out` for the other steps."""
    write_text(out, tracking.open_run(Recipe.parse(recipe), pipeline))


def prepare_text(job: TextJob, run: Path) -> None:
    """Check one language, then read, split and write its text; it is read each time, since it may have grown."""
    preflight.require_ready(job.recipe, languages=[job.tag])
    with tracking.stage(run.read_text(), job.name) as stage:
        stage.record(job.make(stage.watch), {})
