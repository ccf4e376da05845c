"""The pipelines by name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from kfp.dsl import base_component

    from lingraft.config.recipe import Recipe


def _builder(name: str) -> "Callable[..., base_component.BaseComponent]":
    def build_pipeline(recipe: "Recipe", file: str = "") -> "base_component.BaseComponent":
        from pipelines import build, paper  # KFP takes a second, for which --help and refusals do not wait

        builders = {
            "source": build.source_pipeline,
            "depth-search": build.depth_search_pipeline,
            "language": build.language_pipeline,
            "paper": paper.paper_pipeline,
        }
        return builders[name](recipe, file)

    return build_pipeline


COMPARE = "Adapt over all layers as well, to compare with."
"""Description of an option of commands, and of the parameter `compare`."""
PIPELINES = {name: _builder(name) for name in ("source", "depth-search", "language", "paper")}
"""Builders of the pipelines: three for one system up to its endpoint, and one that compares systems.

Each takes a recipe, and the name of the recipe's file for the pages of Kubeflow Pipelines.
"""


def languages_of(name: str, recipe: "Recipe") -> Sequence[str]:
    """Return the languages whose text a pipeline needs; all for `source`, since the other pipelines follow it."""
    if name == "language":
        return recipe.targets
    return [recipe.require_search().language] if name == "depth-search" else recipe.languages


def pipeline_builder(name: str) -> "Callable[..., base_component.BaseComponent]":
    """Return the function that builds a pipeline from a recipe, and from the name of the recipe's file.

    Raises:
        LingraftError: there is no pipeline of that name; the message lists all names.
    """
    if name not in PIPELINES:
        raise LingraftError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}.")
    return PIPELINES[name]
