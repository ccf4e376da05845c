"""The pipelines by name."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from kfp.dsl import base_component

    from lingraft.config.recipe import Recipe

# Importing KFP takes a second, for which --help and refusals do not wait.


def _built(module: str, function: str, recipe: "Recipe") -> "base_component.BaseComponent":
    made: Any = getattr(importlib.import_module(f"pipelines.{module}"), function)
    return made(recipe)


PIPELINES: "dict[str, Callable[[Recipe], base_component.BaseComponent]]" = {
    "source": partial(_built, "build", "source_pipeline"),
    "depth-search": partial(_built, "build", "depth_search_pipeline"),
    "language": partial(_built, "build", "language_pipeline"),
    "paper": partial(_built, "paper", "paper_pipeline"),
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
