"""Compiled pipelines for tests to read: a shipped recipe's once a run, and stand-ins where only their names count."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl
from kfp.dsl import base_component

from components import data
from lingraft.config.recipe import Recipe
from pipelines.__main__ import compile_all
from pipelines.catalogue import PIPELINES
from tests.fixtures import once

Document = dict[str, Any]
ROOT = Path(__file__).parents[2]
_ANYWHERE: dict[str, str] = {}


def shipped(name: str) -> Path:
    """The folder of the pipelines of `recipes/<name>.toml`, which the run compiles once."""
    recipe = ROOT / "recipes" / f"{name}.toml"
    return once.folder(f"compiled-{name}", lambda out: compile_all(recipe, out), recipe.read_bytes())


def read(file: Path) -> list[Document]:
    """Specification and Kubernetes settings, by the parser in C: PyYAML's own takes a quarter of a second."""
    return list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def compiled(recipe: Recipe, folder: Path, *names: str) -> dict[str, list[Document]]:
    """Specification and Kubernetes settings of the named pipelines of a recipe that stands in no file."""
    for name in names:
        compiler.Compiler().compile(PIPELINES[name](recipe), str(folder / f"{name}.yaml"))
    return {name: read(folder / f"{name}.yaml") for name in names}


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Put a pipeline of one step, with parameters of all kinds, in the place of each: compiled in no time."""
    for name in PIPELINES:
        patch.setitem(PIPELINES, name, _of_one_step(name))


def _of_one_step(name: str) -> Callable[..., base_component.BaseComponent]:
    def make(settings: Recipe, file: str = "") -> base_component.BaseComponent:
        @dsl.pipeline(name=f"{settings.name}-{name}")
        def pipeline(
            recipe: str = settings.to_json(),
            memory: str = "1Gi",
            node_selector: dict = _ANYWHERE,
            compare: bool = False,
        ) -> None:
            data.check_inputs(settings=recipe, file="", pipeline=name, languages=[], drop_languages=[])

        return pipeline

    return make
