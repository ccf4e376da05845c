"""The paper's comparison as a pipeline: one step, which goes on where an earlier attempt stopped."""

from kfp import dsl
from kfp.dsl import base_component

from components import compare
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from pipelines.cluster import StepSettings, configure_training
from pipelines.opening import describe, opened
from pipelines.settable import settable


def paper_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Every system in every language on every task, with learning curves; the page says what failed and why."""
    plan_comparison(settings)  # refuses a recipe that compares nothing before anything runs

    @dsl.pipeline(name=f"{settings.name}-paper", description=describe(paper_pipeline.__doc__, settings, file))
    @settable(settings.cluster, "pretraining")
    def pipeline(step_settings: StepSettings) -> None:
        with opened(settings, file, "paper", step_settings, list(settings.targets)) as (recipe, run):
            configure_training(compare.compare(recipe=recipe, run=run), step_settings, "pretraining")

    return pipeline
