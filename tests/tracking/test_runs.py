"""Runs and registry, against a local SQLite store; `tests/faults` asks the same of a server."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import mlflow
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run

from lingraft import tracking
from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Cost, Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import ArtifactError, TextError, TrackingError
from lingraft.signals import Interruption, interruptible
from lingraft.tracking.runs import project_run
from lingraft.training.schedule import TrainingMetrics
from tests.tracking_stores import quiet, sqlite_store

pytestmark = quiet
RECIPE = Recipe.load(Path(__file__).parents[1] / "tiny.toml")
POINTS = [TrainingMetrics(10, 5120, 2e9, 1.5, 4.5, 1e-3), TrainingMetrics(20, 10240, 4e9, 3.0, 3.25, 5e-4)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder under which the store keeps its artifacts; the environment says where the store is."""
    folder = tmp_path_factory.mktemp("store")
    with sqlite_store(folder):
        yield folder / "artifacts"


@pytest.fixture
def parent(store: Path) -> str:
    return tracking.open_run(RECIPE, "language")


def _made(folder: Path, value: float = 1.0, **facts: object) -> Artifact:
    with artifact.create(folder, Kind.EMBEDDINGS) as draft:
        draft.tensors("vocabulary", {"table_VD": torch.full((4, 3), value)})
        draft.facts = {"language": "tr", "aligned_with": "a1" * 32, **facts}
    return Artifact.load(folder, Kind.EMBEDDINGS)


def _run(run_id: str) -> Run:
    return MlflowClient().get_run(run_id)


def _versions(name: str) -> int:
    return len(MlflowClient().search_model_versions(f"name='{name}'"))


def _register(name: str, made: Artifact, parent: str, **tags: object) -> int:
    with tracking.stage(parent, f"register-{name}") as stage:
        return tracking.register(name, made.folder, Kind.EMBEDDINGS, stage, tags, (tracking.CHAMPION,))


def test_a_stage_stands_under_its_pipelines_run_and_both_finish(parent: str) -> None:
    with tracking.stage(parent, "adapt-tr") as stage:
        assert _run(stage.run_id).info.status == "RUNNING"
    assert _run(parent).info.status == "RUNNING"
    tracking.close_run(parent)
    run = _run(stage.run_id)
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.info.experiment_id == _run(parent).info.experiment_id
    assert (run.info.run_name, run.info.status, _run(parent).info.status) == ("adapt-tr", "FINISHED", "FINISHED")


def test_what_an_aborted_pipeline_has_left_open_is_marked_as_killed_and_nothing_else(store: Path) -> None:
    aborted, other = (tracking.open_run(RECIPE, "language", kfp_run) for kfp_run in ("aborted", "other"))
    with tracking.stage(aborted, "adapt-tr") as done:
        pass
    left = MlflowClient().create_run(_run(aborted).info.experiment_id, tags={"mlflow.parentRunId": aborted})
    assert sorted(tracking.close_abandoned(RECIPE.name, "aborted")) == sorted([aborted, left.info.run_id])
    states = [_run(run_id).info.status for run_id in (aborted, left.info.run_id, done.run_id, other)]
    assert states == ["KILLED", "KILLED", "FINISHED", "RUNNING"]
    tracking.close_run(other, failed=True)
    assert tracking.close_abandoned(RECIPE.name, "other") == []
    assert _run(other).info.status == "FAILED"
    assert tracking.close_abandoned("no such project", "aborted") == []


def test_a_pipelines_run_says_what_it_runs_and_keeps_the_whole_recipe(store: Path) -> None:
    examples = {f"a{n}": f"text {n}" for n in range(100, 350)}
    tasks = tuple(RECIPE.task().model_copy(update={"name": name, "examples": examples}) for name in ("one", "other"))
    recipe = RECIPE.model_copy(update={"tasks": tasks})
    run = _run(tracking.open_run(recipe, "language"))
    assert (run.data.tags["pipeline"], run.data.tags["project"]) == ("language", "tiny")
    logged = {"adaptation.depth": "1", "tasks.0.finetuning.seeds": "[1, 2]", "tasks.1.examples.a349": "text 349"}
    assert run.data.params.items() >= logged.items()
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/recipe.json") == recipe.model_dump(mode="json")


def test_what_a_stage_made_is_logged_with_scores_cost_and_origin(parent: str, tmp_path: Path) -> None:
    cost = Cost(steps=20, tokens=10240, flops=4e9, elapsed_s=3.0)
    details = {"depth": 2, "labels": {"C++ & friends?": 3, "../odd": 1}}
    made = _made(tmp_path / "made", cost=cost, recipe={"seed": 7}, data_hashes={"blocks": "b2" * 32}, details=details)
    with tracking.stage(parent, "adapt-tr") as stage:
        stage.record(made, {"masked_accuracy": 0.125})
    run = _run(stage.run_id)
    [score] = MlflowClient().get_metric_history(stage.run_id, "masked_accuracy")
    assert (score.value, score.step) == (0.125, 0)  # a bar on MLflow's pages, which draw a line of what has steps
    assert run.data.metrics.keys() == {"masked_accuracy"}
    assert (float(run.data.tags["cost_flops"]), float(run.data.tags["cost_elapsed_s"])) == (4e9, 3.0)
    assert (run.data.tags["kind"], run.data.tags["language"]) == ("embeddings", "tr")
    expected = {"seed": "7", "depth": "2", "data_blocks": "b2" * 32, "fingerprint": made.fingerprint}
    assert run.data.params == expected
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/{MANIFEST}") == made.manifest.model_dump(mode="json")


def test_the_page_of_a_run_opens_with_what_it_is_and_came_to(parent: str, tmp_path: Path) -> None:
    opening = _run(parent).data.tags["mlflow.note.content"]
    assert "The pipeline `language` of `tiny`, from `en` to `de`, `tr`" in opening
    made = _made(tmp_path / "made", cost=Cost(steps=20, tokens=10240, flops=4e9, elapsed_s=3.0))
    with tracking.stage(parent, "adapt-tr") as stage:
        stage.record(made, {"masked_accuracy": 0.125})
    note = _run(stage.run_id).data.tags["mlflow.note.content"]
    assert note.startswith("**Embeddings in `tr`**: masked_accuracy 0.125; 3 s, 4e+09 FLOP.")
    for said in ("| language | `tr` |", "| masked_accuracy | 0.125 |", made.fingerprint):
        assert said in note
    tracking.describe(
        tracking.connect(), parent, "language: Turkish", "It **went** well.", {"tr over 2 of 6/accuracy": 0.25}
    )
    run = _run(parent)
    assert run.data.metrics == {"tr over 2 of 6/accuracy": 0.25}
    assert (run.info.run_name, run.data.tags["mlflow.note.content"]) == ("language: Turkish", "It **went** well.")
    assert run.data.tags["pipeline"] == "language"


def test_a_stage_that_was_killed_is_marked_by_the_next_attempt(parent: str) -> None:
    lost = tracking.stage(parent, "adapt-tr")
    before = lost.__enter__()  # and never ended
    other = tracking.stage(parent, "adapt-de")
    going_on = other.__enter__()
    with tracking.stage(parent, "adapt-tr"):
        assert _run(before.run_id).info.status == "KILLED"
        assert _run(going_on.run_id).info.status == "RUNNING"
    other.__exit__(None, None, None)
    lost.__exit__(None, None, None)


def test_an_experiment_that_was_deleted_is_named_with_its_remedy(store: Path) -> None:
    recipe = RECIPE.model_copy(update={"name": "deleted"})
    experiment = _run(tracking.open_run(recipe, "language")).info.experiment_id
    MlflowClient().delete_experiment(experiment)
    with pytest.raises(TrackingError, match=rf"'deleted' .* was deleted. Restore it .*--experiment-id {experiment}"):
        tracking.open_run(recipe, "language")


def test_a_schema_of_another_mlflow_is_refused_once_with_mlflows_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
    with sqlite_store(tmp_path):
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
            database.execute("UPDATE alembic_version SET version_num = 'bd07f7e963c5'")
        for call in (partial(tracking.tags_of, "tiny-primary"), partial(tracking.open_run, RECIPE, "source")):
            with pytest.raises(TrackingError, match="run 'mlflow db upgrade") as caught:
                call()
            assert not caught.value.heals
            assert "See that the server is up" not in str(caught.value)


def test_a_version_says_what_it_is_and_belongs_to(parent: str, tmp_path: Path) -> None:
    made = _made(tmp_path / "made")
    _register("described", made, parent, depth=2)
    assert tracking.tags_of("described") == {
        "fingerprint": made.fingerprint,
        "kind": "embeddings",
        "language": "tr",
        "aligned_with": "a1" * 32,
        "depth": "2",
        "library_version": __version__,
        "project": "tiny",
    }


def test_a_learning_curve_is_logged_once_by_steps_beside_what_it_has_cost(parent: str) -> None:
    first, last = POINTS
    with tracking.stage(parent, "adapt-tr") as stage:
        stage.watch(first._replace(left_out_steps=0))
        stage.watch(last._replace(left_out_steps=3))

    def logged(metric: str) -> list[tuple[int, float]]:
        return [(at.step, at.value) for at in MlflowClient().get_metric_history(stage.run_id, metric)]

    assert {metric: logged(metric) for metric in _run(stage.run_id).data.metrics} == {
        "loss": [(10, 4.5), (20, 3.25)],
        "learning_rate": [(10, 1e-3), (20, 5e-4)],
        "cost/tokens": [(10, 5120), (20, 10240)],
        "cost/flops": [(10, 2e9), (20, 4e9)],
        "cost/elapsed_s": [(10, 1.5), (20, 3.0)],
        "left_out_steps": [(20, 3)],
    }


@pytest.mark.parametrize(
    ("ending", "status", "in_stage"),
    [
        (TextError, "FAILED", True),
        (TextError, "FAILED", False),
        (Interruption, "KILLED", True),
        (KeyboardInterrupt, "KILLED", False),
    ],
    ids=["error in a stage", "error", "SIGTERM", "Ctrl-C"],
)
def test_work_that_fails_or_stops_marks_its_runs(
    store: Path, ending: type[BaseException], status: str, in_stage: bool
) -> None:
    runs = []

    def end() -> None:
        if ending is Interruption:
            os.kill(os.getpid(), signal.SIGTERM)
        raise ending("as a user does")

    def work() -> None:
        with project_run("tiny", "add-language", {}, "A language is added.") as run, interruptible():
            runs.append(run)
            with tracking.stage(run, "register-tr") as stage:
                assert _run(run).info.status == "RUNNING"
                if in_stage:
                    runs.append(stage.run_id)
                    end()
            end()

    with pytest.raises(ending):
        work()
    assert {_run(run).info.status for run in runs} == {status}


@pytest.mark.parametrize(
    ("fails", "kind", "words"),
    [(False, TrackingError, "did not do what was asked"), (True, ArtifactError, "the disk is full")],
)
def test_a_stage_whose_run_vanished_is_not_finished_and_fails_with_its_own_error(
    parent: str, fails: bool, kind: type[Exception], words: str
) -> None:
    def lose() -> None:
        with tracking.stage(parent, "adapt-tr") as stage:
            MlflowClient().delete_run(stage.run_id)
            if fails:
                raise ArtifactError("the disk is full")

    with pytest.raises(kind, match=words):
        lose()


def test_the_same_content_is_one_version_and_other_content_a_new_champion(parent: str, tmp_path: Path) -> None:
    made = [_made(tmp_path / name, value) for name, value in (("old", 1.0), ("same", 1.0), ("new", 2.0))]
    assert [_register("grown", each, parent, score=score) for score, each in enumerate(made)] == [1, 1, 2]
    assert tracking.fetch("grown", Kind.EMBEDDINGS, tmp_path / "out").fingerprint == made[2].fingerprint
    tracking.tag("grown", "depth.tr", "4")
    assert tracking.tags_of("grown")["depth.tr"] == "4"
    _register("grown", made[0], parent)
    assert _versions("grown") == 2
    tags = tracking.tags_of("grown")
    assert (tags["fingerprint"], tags["score"], "depth.tr" in tags) == (made[0].fingerprint, "1", False)


def test_aliases_of_ones_own_are_fetched_by_name(parent: str, tmp_path: Path) -> None:
    made = _made(tmp_path / "made")
    with tracking.stage(parent, "register") as stage:
        tracking.register("seeds", made.folder, Kind.EMBEDDINGS, stage, {}, ("seed-1",))
    fetched = tracking.fetch("seeds", Kind.EMBEDDINGS, tmp_path / "out", alias="seed-1")
    assert fetched.manifest == made.manifest
    for call in (partial(tracking.tags_of, "seeds"), partial(tracking.tag, "absent", "key", "value")):
        with pytest.raises(TrackingError, match=r"has no 'champion' of .*Run the pipeline that") as caught:
            call()
        assert mlflow.get_tracking_uri() in str(caught.value)


def test_a_damaged_artifact_is_neither_registered_nor_fetched(parent: str, store: Path, tmp_path: Path) -> None:
    def spoil(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-1])

    made = _made(tmp_path / "made", 7.0)
    _register("spoilt", made, parent)
    whole = (made.folder / MANIFEST).read_bytes()
    copies = (file.parent for file in store.rglob("vocabulary.safetensors"))
    spoil(next(copy for copy in copies if (copy / MANIFEST).read_bytes() == whole) / "vocabulary.safetensors")
    with pytest.raises(ArtifactError, match=r"^version 1 of 'spoilt' .*truncated or edited"):
        tracking.fetch("spoilt", Kind.EMBEDDINGS, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    spoil(made.folder / "vocabulary.safetensors")
    with pytest.raises(ArtifactError, match="truncated or edited"):
        _register("damaged", made, parent)
    assert _versions("damaged") == 0


def test_what_a_run_does_not_keep_is_named(parent: str, tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="'absent'"):
        tracking.fetch_run_artifact(parent, "absent", Kind.EMBEDDINGS, tmp_path / "out")
    with pytest.raises(TrackingError, match="0" * 32), tracking.stage("0" * 32, "adapt-tr"):
        pytest.fail("a stage without a pipeline's run began")
