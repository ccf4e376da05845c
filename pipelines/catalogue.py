"""The pipelines by name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from kfp.dsl import base_component

    from lingraft.config.recipe import Recipe

# Importing KFP takes a second, for which --help and refusals do not wait.


def _source(recipe: "Recipe") -> "base_component.BaseComponent":
    from pipelines import build

    return build.source_pipeline(recipe)


def _depth_search(recipe: "Recipe") -> "base_component.BaseComponent":
    from pipelines import build

    return build.depth_search_pipeline(recipe)


def _language(recipe: "Recipe") -> "base_component.BaseComponent":
    from pipelines import build

    return build.language_pipeline(recipe)


def _paper(recipe: "Recipe") -> "base_component.BaseComponent":
    from pipelines import paper

    return paper.paper_pipeline(recipe)


PIPELINES: "dict[str, Callable[[Recipe], base_component.BaseComponent]]" = {
    "source": _source,
    "depth-search": _depth_search,
    "language": _language,
    "paper": _paper,
}
"""Builders of the pipelines: three for one system up to its endpoint, and one that compares systems."""


def languages_of(name: str, recipe: "Recipe") -> Sequence[str]:
    """Return the languages whose text a pipeline needs; all for `source`, since the other pipelines follow it."""
    if name == "language":
        return recipe.targets
    return [recipe.require_search().language] if name == "depth-search" else recipe.languages


def pipeline_builder(name: str) -> "Callable[[Recipe], base_component.BaseComponent]":
    """Return the function that builds a pipeline from a recipe.

    Raises:
        LingraftError: there is no pipeline of that name; the message lists all names.
    """
    if name not in PIPELINES:
        raise LingraftError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}.")
    return PIPELINES[name]
