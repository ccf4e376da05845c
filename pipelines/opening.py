"""Start and end that all pipelines share: inputs are checked, and a tracking run is opened, and closed on exit."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from kfp import dsl

from components import data
from lingraft.config.recipe import Recipe
from pipelines.cluster import StepSettings, configure_light

_DIGEST_CHARACTERS = 12


class Opened(NamedTuple):
    """Artifacts that all steps of a pipeline read."""

    recipe: Any
    """The recipe as an artifact, so that pages show it as a file and not as a parameter of every step."""
    run: Any
    """The pipeline's tracking run."""


def describe(summary: str | None, settings: Recipe, file: str) -> str:
    """Return the description of a pipeline: a summary, and which recipe it was compiled from.

    Args:
        summary: sentence on what the pipeline does.
        settings: recipe of the pipeline.
        file: name of the recipe's file; the recipe's own name stands for it if empty.
    """
    return f"{summary} Recipe: {file or settings.name}, digest {settings.digest()[:_DIGEST_CHARACTERS]}."


@contextlib.contextmanager
def opened(
    settings: Recipe,
    file: str,
    pipeline: str,
    step_settings: StepSettings,
    languages: Any,
    drop_languages: Any = None,
) -> Iterator[Opened]:
    """Check the inputs of the languages (all if empty), and open the tracking run under which the body's steps run.

    Kubeflow Pipelines starts the exit handler however the body ends, also where a run is aborted.
    """
    kfp_run = dsl.PIPELINE_JOB_ID_PLACEHOLDER
    closed = configure_light(data.close_run(project=settings.name, kfp_run=kfp_run), step_settings)
    with dsl.ExitHandler(closed):  # without a name: drivers look for the group by the name that KFP gives it
        checked = data.check_inputs(
            settings=settings.to_json(),
            file=file or settings.name,
            pipeline=pipeline,
            languages=languages,
            drop_languages=drop_languages or [],
        )
        recipe = configure_light(checked, step_settings).outputs["recipe"]
        begun = configure_light(data.open_run(recipe=recipe, pipeline=pipeline, kfp_run=kfp_run), step_settings)
        yield Opened(recipe, begun.outputs["run"])
