"""The pipelines that there are, by name."""

from collections.abc import Callable, Sequence

from kfp.dsl import base_component

from lingraft.config import Recipe
from lingraft.errors import LingraftError
from pipelines import build, paper

PIPELINES: dict[str, Callable[[Recipe], base_component.BaseComponent]] = {
    "source": build.source_pipeline,
    "depth-search": build.depth_search_pipeline,
    "language": build.language_pipeline,
    "paper": paper.paper_pipeline,
}
"""The way of one system to an endpoint; and, apart from it, the comparison of systems."""


def languages_of(name: str, recipe: Recipe) -> Sequence[str]:
    """Languages whose text a pipeline needs; for `source` all, since the others are to follow."""
    if name == "language":
        return recipe.targets
    return [recipe.require_search().language] if name == "depth-search" else recipe.languages


def pipeline_named(name: str) -> Callable[[Recipe], base_component.BaseComponent]:
    """What makes a pipeline of a recipe.

    Raises:
        LingraftError: there is none of that name; the message lists those there are.
    """
    if name not in PIPELINES:
        raise LingraftError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}.")
    return PIPELINES[name]
