"""The pipelines that there are, by name."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from kfp.dsl import base_component

    from lingraft.config.recipe import Recipe

# KFP takes a second to import, for which --help and refusals do not wait.


def _built(module: str, function: str, recipe: "Recipe") -> "base_component.BaseComponent":
    made: Any = getattr(importlib.import_module(f"pipelines.{module}"), function)
    return made(recipe)


PIPELINES: "dict[str, Callable[[Recipe], base_component.BaseComponent]]" = {
    "source": partial(_built, "build", "source_pipeline"),
    "depth-search": partial(_built, "build", "depth_search_pipeline"),
    "language": partial(_built, "build", "language_pipeline"),
    "paper": partial(_built, "paper", "paper_pipeline"),
}
"""The way of one system to an endpoint; and, apart from it, the comparison of systems."""


def languages_of(name: str, recipe: "Recipe") -> Sequence[str]:
    """Languages whose text a pipeline needs; for `source` all, since the others are to follow."""
    if name == "language":
        return recipe.targets
    return [recipe.require_search().language] if name == "depth-search" else recipe.languages


def pipeline_builder(name: str) -> "Callable[[Recipe], base_component.BaseComponent]":
    """What makes a pipeline of a recipe.

    Raises:
        LingraftError: there is none of that name; the message lists those there are.
    """
    if name not in PIPELINES:
        raise LingraftError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}.")
    return PIPELINES[name]
