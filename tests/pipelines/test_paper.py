"""The comparison's pipeline: as it is compiled, and run by kfp.local with a language that fails."""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from kfp import components
from mlflow import MlflowClient

from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.reports.paper.records import PaperRecords
from pipelines import local
from tests.comparison.project import CHECKPOINTS, recipe, recipe_on
from tests.fixtures import once
from tests.pipelines.compiled import compiled, read
from tests.pipelines.finished import runs_of
from tests.tracking_stores import quiet


@pytest.fixture(scope="module")
def settings() -> Recipe:
    return recipe_on(Path("nowhere"), cluster={"parallel_languages": 3})


@pytest.fixture(scope="module")
def documents(settings: Recipe) -> list[dict[str, Any]]:
    """Specification and Kubernetes settings."""
    folder = once.folder("paper-pipeline", lambda out: compiled(settings, out, "paper"), settings.to_json())
    return read(folder / "paper.yaml")


def dags(specification: dict[str, Any]) -> list[dict[str, Any]]:
    parts = (specification["root"], *specification["components"].values())
    return [task for part in parts if "dag" in part for task in part["dag"]["tasks"].values()]


def component_of(task: dict[str, Any]) -> str:
    """A step's name, without the number that tells it from others of its kind."""
    return str(task["componentRef"]["name"]).removeprefix("comp-").rstrip("0123456789").rstrip("-")


def constants(task: dict[str, Any], name: str) -> str:
    return str(task["inputs"]["parameters"][name]["runtimeValue"]["constant"])


def test_every_arm_is_adapted_and_judged_once_a_language(documents: list[dict[str, Any]], settings: Recipe) -> None:
    tasks = dags(documents[0])
    arms = sorted(arm.name for arm in plan_comparison(settings).arms)
    adapted = [constants(task, "arm") for task in tasks if component_of(task) in {"adapt", "adapt-over-mini"}]
    judged = [constants(task, "arm") for task in tasks if component_of(task) == "judge-language"]
    assert sorted(adapted) == sorted(judged) == arms
    [mini] = [constants(task, "arm") for task in tasks if component_of(task) == "build-mini"]
    assert mini == "minipost-1-seed-1"
    assert len([task for task in tasks if component_of(task) == "gather"]) == len(arms)


def test_every_primary_is_pretrained_and_finetuned_once(documents: list[dict[str, Any]], settings: Recipe) -> None:
    tasks = dags(documents[0])
    names = sorted(one.name for one in plan_comparison(settings).primaries)
    for step in ("pretrain", "judge-source"):
        assert sorted(constants(task, "name") for task in tasks if component_of(task) == step) == names
    loops = [task["parameterIterator"]["items"] for task in tasks if "parameterIterator" in task]
    words = [[one.key for one in primary.finetunings] for primary in plan_comparison(settings).primaries]
    assert sorted(yaml.safe_load(items["raw"]) for items in loops if "raw" in items) == sorted(words)


def test_languages_are_known_when_it_is_run(documents: list[dict[str, Any]], settings: Recipe) -> None:
    specification = documents[0]
    inputs = specification["root"]["inputDefinitions"]["parameters"]
    assert inputs["languages"]["defaultValue"] == list(settings.targets)
    [check] = [task for task in dags(specification) if component_of(task) == "check-inputs"]
    assert Recipe.parse(constants(check, "settings")) == settings
    loops = [task for task in dags(specification) if "parameterIterator" in task]
    assert {loop["iteratorPolicy"]["parallelismLimit"] for loop in loops} == {3}
    inputs = [loop["parameterIterator"]["items"].get("inputParameter") for loop in loops]
    assert [each for each in inputs if each] == ["pipelinechannel--languages"]


def test_without_tasks_nothing_is_finetuned(tmp_path: Path) -> None:
    specification, _ = compiled(recipe_on(tmp_path, tasks=[]), tmp_path, "paper")["paper"]
    assert {component_of(task) for task in dags(specification)}.isdisjoint({"finetune"})


@pytest.mark.integration
@quiet
def test_it_runs_to_its_report_though_a_language_fails(tmp_path: Path) -> None:
    finetuning = {"epochs": 0.5, "seeds": [1, 2]}
    tasks = [{"name": "topic", "kind": "documents", "finetuning": finetuning}]
    changes = {"targets": ["de", "sw"], "tasks": tasks, "paper": {"systems": ["BL_BASE", "MINIPOST"]}}
    settings, screen = recipe(tmp_path, **changes), io.StringIO()
    compiled(settings, tmp_path, "paper")
    pipeline = components.load_component_from_file(str(tmp_path / "paper.yaml"))
    with mock.patch.dict(os.environ), contextlib.redirect_stdout(screen):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        report = local.run(pipeline, tmp_path / "out")
        parent, stages = runs_of(MlflowClient(os.environ["MLFLOW_TRACKING_URI"]), settings.name)["paper"]
    records = PaperRecords.load(report)
    assert report is not None
    wanted = {(system, language) for system in ("BL_BASE", "MINIPOST") for language in ("de", "sw")}
    assert {(cell.system, cell.language) for cell in records.cells} == wanted
    for cell in records.cells:
        assert [point.step for point in cell.points] == (CHECKPOINTS if cell.language == "de" else [])
        assert (cell.failed is None) == (cell.language == "de")
        assert cell.failed is None or cell.failed.startswith("text of 'sw': ")
        assert all(set(p.scores.by_seed) == ({1, 2} if cell.task == "topic" else {1}) for p in cell.points)
    assert parent.info.status == "FINISHED"
    assert {name for name, stage in stages.items() if stage.info.status == "FAILED"} == {"text-sw"}
    assert re.search(r"\] step (\d+) of \1: (write-report|close-run)", screen.getvalue())
