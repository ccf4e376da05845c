"""Compiled pipelines for tests to read: a shipped recipe's once a run, and stand-ins where only their names count."""

import json
from collections.abc import Callable, Iterator
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
    documents = list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
    wrong = [*mismatches(documents[0])]
    assert not wrong, wrong
    return documents


def mismatches(specification: Document) -> Iterator[str]:
    """Inputs that are given another type than they take: KFP compiles them, and its driver fails the task."""
    components = specification["components"]
    for dag in (specification["root"], *components.values()):
        tasks = dag.get("dag", {}).get("tasks", {})
        outputs = {name: types_of(components[task["componentRef"]["name"]], "output") for name, task in tasks.items()}
        for name, task in tasks.items():
            takes = types_of(components[task["componentRef"]["name"]], "input")
            inputs = task.get("inputs", {})
            given = {
                key: _given(each, types_of(dag, "input"), outputs)
                for key, each in (inputs.get("parameters", {}) | inputs.get("artifacts", {})).items()
                if key in takes  # KFP adds others, for resources and for lists of parameters
            }
            iterator = task.get("parameterIterator")
            items = json.loads(iterator["items"].get("raw", "[]")) if iterator else []
            if iterator and "inputParameter" in iterator["items"]:
                given[iterator["items"]["inputParameter"]] &= {"LIST"}
            for key, types in [*given.items(), *((iterator["itemInput"], _of_value(item)) for item in items)]:
                if not types & {takes[key], takes[key].replace("system.Artifact", "any")}:
                    yield f"{name}: {key} takes {takes[key]}, and is given {' or '.join(sorted(types))}"


def types_of(component: Document, side: str) -> dict[str, str]:
    """Types of a component's inputs or outputs by name."""
    defined = component.get(f"{side}Definitions", {})
    artifacts = {
        name: f"{'list of ' if each.get('isArtifactList') else ''}{each['artifactType']['schemaTitle']}"
        for name, each in defined.get("artifacts", {}).items()
    }
    return {name: each["parameterType"] for name, each in defined.get("parameters", {}).items()} | artifacts


def _given(given: Document, inputs: dict[str, str], outputs: dict[str, dict[str, str]]) -> set[str]:
    """Types as which a component takes what a task is given: an artifact of any kind is an Artifact."""
    [(kind, what)] = given.items()
    if kind == "runtimeValue":
        return _of_value(what["constant"])
    if kind == "taskFinalStatus":
        return {"TASK_FINAL_STATUS"}
    if kind.startswith("componentInput"):
        found = inputs[what]
    else:
        assert kind in {"taskOutputParameter", "taskOutputArtifact"}
        found = outputs[what["producerTask"]][what.get("outputParameterKey") or what["outputArtifactKey"]]
    return {found, "list of any" if found.startswith("list of ") else "any" if "system." in found else found}


def _of_value(value: Any) -> set[str]:
    """Types of parameters that a constant fits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"NUMBER_DOUBLE", *(["NUMBER_INTEGER"] if float(value).is_integer() else [])}
    return {{bool: "BOOLEAN", str: "STRING", list: "LIST", dict: "STRUCT"}[type(value)]}


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
