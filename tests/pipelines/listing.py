"""A compiled pipeline as a page to review: its parameters, its steps with what each is given, and their pods."""

import json
from collections.abc import Iterator
from graphlib import TopologicalSorter
from typing import Any

from tests.pipelines.compiled import Document, types_of

_CHANNEL = "pipelinechannel--"
"""KFP's prefix for what a group of steps gets from outside."""
_LEFT_OUT = {"command", "args"} | {
    *("secretNameParameter", "pvcNameParameter", "cpuLimit", "cpuRequest", "memoryLimit", "memoryRequest")
}
"""Code of components, and what KFP writes twice."""


def listing(documents: list[Document]) -> str:
    """Parameters, settings of pods, and steps in their order; steps whose pods are alike name the same pod."""
    specification, platform = documents
    root = specification["root"]
    parameters = root.get("inputDefinitions", {}).get("parameters", {})
    places = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    executors = specification["deploymentSpec"]["executors"]
    asked = {name: {*_leaves(one["container"]), *_leaves(places[name])} for name, one in executors.items()}
    alike = set.intersection(*asked.values())
    kinds: dict[frozenset[str], str] = {}
    pods = {name: kinds.setdefault(frozenset(own - alike), f"pod {len(kinds) + 1}") for name, own in asked.items()}
    lines = [
        *(f"{name} {one['parameterType']} = {_shown(one.get('defaultValue'))}" for name, one in parameters.items()),
        *("", "every pod", *(f"  {setting}" for setting in sorted(alike))),
        *(f"{name}: {', '.join(sorted(own))}" for own, name in kinds.items()),
        *("", *_tasks(specification["components"], pods, root)),
    ]
    return "\n".join(lines) + "\n"


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, list):
        value = {one["name"]: one["value"] for one in value} if name == ".env" else dict(enumerate(value))
    if name.endswith(".keyToEnv"):
        value = ", ".join(f"{one['envVar']} < {one['secretKey']}" for one in value.values())
    if not isinstance(value, dict) or not value:
        yield f"{name[1:]} = {_shown(value)}"
    else:
        for key in value.keys() - _LEFT_OUT:
            yield from _leaves(value[key], f"{name}.{key}")


def _shown(value: Any) -> str:
    if isinstance(value, str) and value.startswith('{"name":'):
        return "the recipe"
    return json.dumps(value, ensure_ascii=False).replace(_CHANNEL, "")


def _tasks(components: Document, pods: dict[str, str], group: Document, indent: str = "") -> Iterator[str]:
    tasks = group["dag"]["tasks"]
    waits = {name: sorted(task.get("dependentTasks", ())) for name, task in tasks.items()}
    for name in TopologicalSorter(waits).static_order():
        task = tasks[name]
        component = components[task["componentRef"]["name"]]
        given = task.get("inputs", {}).get("parameters", {}) | task.get("inputs", {}).get("artifacts", {})
        takes = {key: kind for key, kind in types_of(component, "input").items() if _CHANNEL not in key}
        makes = {key: kind for key, kind in types_of(component, "output").items() if _CHANNEL not in key}
        parts = [f"{key} {kind} = {_origin(given[key])}" for key, kind in takes.items() if key in given]
        if loop := task.get("parameterIterator"):
            items = loop["items"].get("raw") or loop["items"]["inputParameter"].removeprefix(_CHANNEL)
            parts.append(f"for each of {items}, {task.get('iteratorPolicy', {}).get('parallelismLimit')} at a time")
        producers = {one["producerTask"] for kind in given.values() for one in kind.values() if "producerTask" in one}
        if others := [other for other in waits[name] if other not in producers]:
            parts.append(f"after {' '.join(others)}")
        parts += [f"{key} {_shown(task[key])}" for key in ("triggerPolicy", "retryPolicy") if key in task]
        parts += ["cached"] if task.get("cachingOptions", {}).get("enableCache") else []
        pod = pods.get(component.get("executorLabel", ""))
        made = [f"makes {', '.join(f'{key} {kind}' for key, kind in makes.items())}"] if makes else []
        told = "; ".join([", ".join(parts) or "no inputs", *made])
        yield f"{indent}{name}{f' ({pod})' if pod else ''}: {told}".replace("system.", "")
        if "dag" in component:
            yield from _tasks(components, pods, component, f"{indent}  ")


def _origin(given: Document) -> str:
    [(kind, what)] = given.items()
    if kind == "runtimeValue":
        return _shown(what["constant"])
    if kind.startswith("componentInput"):
        return str(what).removeprefix(_CHANNEL)
    output = what.get("outputParameterKey") or what.get("outputArtifactKey", "status")
    return output.removeprefix(_CHANNEL) if _CHANNEL in output else f"{what['producerTask']}-{output}"
