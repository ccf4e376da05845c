"""The pipelines that there are, by name."""

from collections.abc import Callable

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


def pipeline_named(name: str) -> Callable[[Recipe], base_component.BaseComponent]:
    """What makes a pipeline of a recipe.

    Raises:
        LingraftError: there is none of that name; the message lists those there are.
    """
    if name not in PIPELINES:
        raise LingraftError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}.")
    return PIPELINES[name]
