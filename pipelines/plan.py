"""The steps of a local run, counted before the first one starts."""

import json
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any

from google.protobuf import json_format
from kfp.dsl import base_component

from lingraft.config.recipe import Recipe
from lingraft.console import PlannedStep

_ITERATIONS_AT_ONCE = 2
"""Iterations of a loop that `kfp.local` runs in parallel."""
_CHECK = "check-inputs"


def planned_steps(pipeline: base_component.BaseComponent, arguments: Mapping[str, Any]) -> list[PlannedStep]:
    """Return every step of a pipeline, by the name of its component.

    A loop over a step's output is one over the depths of a language: the recipe's own, and all layers to compare with.

    Args:
        pipeline: pipeline to run.
        arguments: parameters that differ from their defaults.
    """
    spec = json_format.MessageToDict(pipeline.pipeline_spec)
    root = spec.get("root", {})
    defined = root.get("inputDefinitions", {}).get("parameters", {})
    values = {name: each["defaultValue"] for name, each in defined.items() if "defaultValue" in each} | {**arguments}
    recipe = _recipe(spec)
    compares = recipe and values.get("compare") and recipe.adaptation.depth != recipe.encoder.layers
    return [PlannedStep(name, at_once) for name, at_once in _steps(spec, root, values, 1, 2 if compares else 1)]


def _recipe(spec: Mapping[str, Any]) -> Recipe | None:
    """Return the recipe of a pipeline, a constant of the step that checks inputs; None if there is no such step."""
    dags = (component["dag"] for component in spec.get("components", {}).values() if "dag" in component)
    checks = (dag["tasks"][_CHECK] for dag in dags if _CHECK in dag["tasks"])
    given = next((check["inputs"]["parameters"]["settings"] for check in checks), None)
    return Recipe.parse(given["runtimeValue"]["constant"]) if given else None


def _steps(
    spec: Mapping[str, Any], component: Mapping[str, Any], values: Mapping[str, Any], at_once: int, unknown: int
) -> Iterator[tuple[str, int]]:
    """Yield the names of a component's steps, in a possible order, and how many of each run in parallel.

    `unknown` is the number of iterations of a loop over a step's output.
    """
    if "executorLabel" in component:
        arguments = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]["args"]
        yield arguments[arguments.index("--function_to_execute") + 1].replace("_", "-"), at_once
        return
    tasks = component.get("dag", {}).get("tasks", {})
    order = TopologicalSorter({name: task.get("dependentTasks", []) for name, task in tasks.items()})
    for task in (tasks[name] for name in order.static_order()):
        given = task.get("inputs", {}).get("parameters", {})
        inner = {name: value for name, each in given.items() if (value := _value(each, values)) is not None}
        iterator = task.get("parameterIterator")
        count = 1
        side_by_side = at_once
        if iterator:
            items = _items(iterator["items"], inner)
            count = unknown if items is None else len(items)
            limit = int(task.get("iteratorPolicy", {}).get("parallelismLimit", 0)) or _ITERATIONS_AT_ONCE
            side_by_side = at_once * max(1, min(count, limit, _ITERATIONS_AT_ONCE))
        for _ in range(count):
            yield from _steps(spec, spec["components"][task["componentRef"]["name"]], inner, side_by_side, unknown)


def _value(given: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Return a task's parameter if it is known before the run, else None."""
    if "componentInputParameter" in given:
        return values.get(given["componentInputParameter"])
    return given.get("runtimeValue", {}).get("constant")


def _items(items: Mapping[str, Any], values: Mapping[str, Any]) -> list[Any] | None:
    """Return the items of a loop if they are known before the run, else None."""
    found = json.loads(items["raw"]) if "raw" in items else values.get(items["inputParameter"])
    return found if isinstance(found, list) else None
