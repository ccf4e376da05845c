"""The comparison's components called as KFP's executor calls them, in the pipeline's order; one language fails."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from kfp.dsl.python_component import PythonComponent
from mlflow import MlflowClient
from mlflow.entities import Run

from components import data, paper
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.failures import FAILED_FILE, failure_reason
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.errors import RecipeError
from lingraft.reports.paper.records import PaperRecords
from tests.comparison.project import CHECKPOINTS, recipe
from tests.components.in_process import steps_in_process
from tests.pipelines.finished import runs_of
from tests.tracking_stores import quiet, sqlite_store

pytestmark = [quiet, pytest.mark.integration]
TASKS = [{"name": "topic", "kind": "documents", "finetuning": {"epochs": 0.5, "seeds": [1, 2]}}]
CHANGES: dict[str, Any] = {
    "targets": ["de", "sw"],
    "paper": {"systems": ["BL_BASE", "MINIPOST"]},
    "tasks": TASKS,
}


@dataclass
class Bench:
    """Steps run by hand: every output goes into a folder of its own, and is kept under the step's and its own name."""

    recipe: Recipe
    folder: Path
    run: dsl.Artifact
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    def do(self, step: str, component: PythonComponent, /, **inputs: Any) -> dict[str, dsl.Artifact]:
        """Call a component's function; artifacts that it puts out come back by their names."""
        specification = component.component_spec
        outputs = {
            output: dsl.Artifact(name=output, uri=str(self.folder / step / output)) for output in specification.outputs
        }
        if "metrics" in outputs:
            outputs["metrics"] = dsl.Metrics()
        given = {"recipe": self.recipe.to_json(), "run": self.run} | inputs | outputs
        component.python_func(**{key: given[key] for key in (*specification.inputs, *outputs) if key in given})
        self.metrics[step] = outputs.pop("metrics").metadata if "metrics" in outputs else {}
        return outputs


@dataclass(frozen=True)
class Finished:
    """What the steps left."""

    bench: Bench
    lanes: dict[str, dict[str, dsl.Artifact]]
    evaluations: dict[tuple[str, str], dsl.Artifact]
    report: dict[str, dsl.Artifact]
    runs: dict[str, tuple[Run, dict[str, Run]]]

    @property
    def records(self) -> PaperRecords:
        return PaperRecords.load(Path(self.report["report"].path))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with sqlite_store(folder), pytest.MonkeyPatch.context() as patch:
        steps_in_process(patch)
        made = Bench(recipe(folder, **CHANGES), folder / "steps", dsl.Artifact(name="run", uri=str(folder / "run")))
        data.open_run.python_func(made.recipe.to_json(), "paper", made.run)
        yield made


@pytest.fixture(scope="module")
def finished(bench: Bench) -> Finished:
    """One primary for two systems, one of which builds a mini-model; German is learned, Swahili has no text."""
    comparison = plan_comparison(bench.recipe)
    [planned] = comparison.primaries
    lanes = {
        language: bench.do(f"lane-{language}", paper.prepare_language, language=language)
        for language in bench.recipe.languages
    }
    source = lanes["en"]
    name = {"name": planned.name}
    primary = bench.do("pretrain", paper.pretrain, **name, **source)
    finetuned = [
        bench.do(one.key, paper.finetune, **name, job=one.key, **primary, **source)["task"]
        for one in planned.finetunings
    ]
    judged = bench.do("source", paper.judge_source, **name, **primary, **source, finetuned=finetuned)
    results, evaluations = judged["evaluation"], {}
    for arm in comparison.arms:
        of = {"arm": arm.name, **primary}
        mini = bench.do("mini", paper.build_mini, **of, **source) if arm.recipe.builds_mini else {}
        adapt = paper.adapt_over_mini if mini else paper.adapt
        for language in bench.recipe.targets:
            its = {**of, "language": language, **lanes[language]}
            curve = bench.do(f"adapt-{arm.name}-{language}", adapt, **its, **mini)
            step = f"judge-{arm.name}-{language}"
            made = bench.do(step, paper.judge_language, **its, **curve, tasks=judged["tasks"])
            evaluations[arm.name, language] = made["evaluation"]
        its = [evaluation for (of, _), evaluation in evaluations.items() if of == arm.name]
        gathered = bench.do(f"gather-{arm.name}", paper.gather, before=results, source=judged["evaluation"], judged=its)
        results = gathered["results"]
    report = bench.do("report", paper.write_report, results=results)
    return Finished(bench, lanes, evaluations, report, runs_of(MlflowClient(), bench.recipe.name))


def test_records_hold_every_system_and_language(finished: Finished) -> None:
    cells = {(cell.system, cell.language, cell.task): cell for cell in finished.records.cells}
    assert cells.keys() == {
        (system, language, task)
        for system in ("BL_BASE", "MINIPOST")
        for language in ("de", "sw")
        for task in ("topic", "masked")
    }
    for (_, language, _), cell in cells.items():
        assert [point.step for point in cell.points] == (CHECKPOINTS if language == "de" else [])


def test_a_language_that_fails_is_a_hole_with_the_first_steps_reason(finished: Finished) -> None:
    reasons = {cell.failed for cell in finished.records.cells if cell.language == "sw"}
    first = failure_reason(Path(finished.lanes["sw"]["text"].path))
    assert reasons == {first}
    assert str(first).startswith("text of 'sw': ")
    for name in ("tokenizer", "blocks"):
        assert [path.name for path in Path(finished.lanes["sw"][name].path).iterdir()] == [FAILED_FILE]


def test_scores_and_costs_are_shown_beside_the_steps(finished: Finished) -> None:
    shown = finished.bench.metrics
    cost = Artifact.load(finished.bench.folder / "pretrain" / "primary", Kind.PRIMARY).manifest.cost
    assert shown["pretrain"] == pytest.approx(cost.model_dump())
    [cell] = [c for c in finished.records.cells if (c.system, c.language, c.task) == ("BL_BASE", "de", "topic")]
    assert shown["judge-bl-base-2-seed-1-de"]["topic"] == cell.points[-1].scores.mean
    assert shown["judge-bl-base-2-seed-1-sw"] == shown["adapt-bl-base-2-seed-1-sw"] == {}
    assert shown["source"].keys() == {"topic-2-layers", "masked-2-layers"}


def test_finetunings_are_gathered_for_all_languages(finished: Finished) -> None:
    tasks = finished.bench.folder / "source" / "tasks"
    for one in plan_comparison(finished.bench.recipe).primaries[0].finetunings:
        assert Artifact.load(one.path_in(tasks), Kind.TASK).manifest.details["seed"] == one.seed


def test_tracking_has_a_run_a_step_and_ends_with_the_report(finished: Finished) -> None:
    parent, stages = finished.runs["paper"]
    assert parent.info.status == "FINISHED"
    failed = {name for name, stage in stages.items() if stage.info.status != "FINISHED"}
    assert failed == {"text-sw"}
    assert {"pretrain-2-layers-heads-2-seed-1", "build-mini-minipost-1-seed-1", "report"} <= stages.keys()
    assert {"adapt-de-minipost-1-seed-1", "judge-de-minipost-1-seed-1", "judge-sw-minipost-1-seed-1"} <= stages.keys()
    assert "adapt-sw-minipost-1-seed-1" not in stages


def test_the_page_is_shown_and_kept(finished: Finished, tmp_path: Path) -> None:
    page = Path(finished.report["page"].path).read_text(encoding="utf-8")
    assert page == (Path(finished.report["report"].path) / "paper.html").read_text(encoding="utf-8")
    run = finished.runs["paper"][1]["report"].info.run_id
    kept = MlflowClient().download_artifacts(run, "report/records.json", str(tmp_path))
    assert json.loads(Path(kept).read_text(encoding="utf-8")) == finished.records.model_dump(mode="json")


def test_an_arm_of_another_recipe_is_our_mistake_and_no_hole(bench: Bench) -> None:
    inputs = {name: dsl.Artifact(name=name, uri=str(bench.folder / name)) for name in ("primary", "blocks")}
    with pytest.raises(RecipeError, match="no arm 'minijoint-1-seed-1'"):
        bench.do("wrong", paper.build_mini, arm="minijoint-1-seed-1", **inputs)
