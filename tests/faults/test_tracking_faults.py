"""Training and registration while MLflow's server is down, slow, answers 500 or does its work and cannot say so.

The server is MLflow's own, with the command of our manifests; `mlflow_proxy` stands before it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run

from lingraft import tracking
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import TrackingError
from lingraft.tracking.client import UnreachableError
from lingraft.training.schedule import TrainingMetrics
from tests.faults.mlflow_proxy import PASSING, Fault, Proxy, proxy_to
from tests.tracking_server import shared
from tests.tracking_stores import quiet
from tests.workshop import Workshop, changed

pytestmark = [quiet, pytest.mark.integration]
RECIPE = Recipe.load(Path(__file__).parents[1] / "tiny.toml").model_copy(update={"name": "faulty"})
STEPS = 12
LOG_BATCH = "POST /api/2.0/mlflow/runs/log-batch"
CREATE_VERSION = "POST /api/2.0/mlflow/model-versions/create"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What MLFLOW_TRACKING_URI points at; a server that is down is asked often."""
    with proxy_to(shared().port) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        for setting in ("FACTOR", "JITTER"):
            monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_BACKOFF_{setting}", "0")
        monkeypatch.setattr("lingraft.tracking.runs._PAUSE_S", 0.05)
        yield proxy


@pytest.fixture
def truth() -> MlflowClient:
    return MlflowClient(shared().uri)


@pytest.fixture
def parent(proxy: Proxy) -> str:
    return tracking.open_run(RECIPE, "language")


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    settings = {"steps": STEPS, "log_every_steps": 1}
    return dataclasses.replace(workshop, recipe=changed(workshop.recipe, "adaptation", **settings))


@pytest.fixture(scope="module")
def undisturbed(shop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> str:
    return shop.adapt("de", 1, tmp_path_factory.mktemp("undisturbed") / "out").fingerprint


def history(truth: MlflowClient, run_id: str, metric: str = "loss") -> list[tuple[int, float]]:
    return [(at.step, at.value) for at in truth.get_metric_history(run_id, metric)]


def losses(curve: list[TrainingMetrics]) -> list[tuple[int, float]]:
    return [(point.step, point.loss) for point in curve]


def train(shop: Workshop, run: tracking.StageRun, out: Path, meanwhile: Callable[[int], None]) -> list[TrainingMetrics]:
    """Adapt as the pipeline's step does, with something going on at every point; returns the curve."""
    curve: list[TrainingMetrics] = []

    def watch(point: TrainingMetrics) -> None:
        run.watch(point)
        curve.append(point)
        meanwhile(point.step)

    run.record(shop.adapt("de", 1, out, watch=watch), {})
    assert [point.step for point in curve] == [*range(1, STEPS + 1)]
    return curve


def test_faults_of_every_kind_during_training_change_no_weight_and_no_curve(
    proxy: Proxy, truth: MlflowClient, parent: str, shop: Workshop, undisturbed: str, tmp_path: Path
) -> None:
    kinds = itertools.cycle(PASSING)

    def meanwhile(step: int) -> None:
        if step == 3:
            proxy.fault = lambda request: next(kinds) if request == LOG_BATCH else Fault.NONE
        if step == 6:
            proxy.wait_until(lambda: len(proxy.injected) >= len(PASSING))
        if step == 9:
            proxy.fault = lambda request: Fault.NONE

    with tracking.stage(parent, "adapt-de") as run:
        curve = train(shop, run, tmp_path / "out", meanwhile)
    assert {name for name, _ in proxy.injected} == {*PASSING}
    assert Artifact.load(tmp_path / "out", Kind.EMBEDDINGS).fingerprint == undisturbed
    for metric in ("loss", "learning_rate", "cost/tokens", "cost/flops", "cost/elapsed_s"):
        assert len(history(truth, run.run_id, metric)) == STEPS
    assert history(truth, run.run_id) == losses(curve)
    assert truth.get_run(run.run_id).info.status == "FINISHED"


def test_training_ends_while_the_server_has_not_answered_its_first_point(
    proxy: Proxy, truth: MlflowClient, parent: str, shop: Workshop, undisturbed: str, tmp_path: Path
) -> None:
    """If a step waited for the server, training would not get to its end: the server answers only afterwards."""
    proxy.fault = lambda request: Fault.HELD if request == LOG_BATCH else Fault.NONE
    with tracking.stage(parent, "adapt-de") as run:
        curve: list[TrainingMetrics] = []

        def watch(point: TrainingMetrics) -> None:
            run.watch(point)
            curve.append(point)
            if point.step == 2:
                proxy.wait_until(lambda: bool(proxy.injected))

        made = shop.adapt("de", 1, tmp_path / "out", watch=watch)
        assert (history(truth, run.run_id), len(proxy.injected)) == ([], 1)
        proxy.released.set()
    assert made.fingerprint == undisturbed
    assert history(truth, run.run_id) == losses(curve)


def test_a_server_that_stays_down_fails_no_stage_and_its_loss_is_told(
    proxy: Proxy,
    truth: MlflowClient,
    parent: str,
    shop: Workshop,
    undisturbed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")

    def meanwhile(step: int) -> None:
        if step == 4:
            proxy.wait_until(lambda: LOG_BATCH in proxy.forwarded)
            proxy.down()

    with tracking.stage(parent, "adapt-de") as run:
        curve = train(shop, run, tmp_path / "out", meanwhile)
    said, arrived = capsys.readouterr().err, history(truth, run.run_id)
    assert arrived == losses(curve)[: len(arrived)]
    assert f"lacks {STEPS - len(arrived)} points of its learning curve, from step {len(arrived) + 1} on." in said
    assert f"{tmp_path / 'out'} has them all." in said
    assert f"Run {run.run_id} of stage 'adapt-de' lacks manifest, cost and 0 scores." in said
    assert f"The embeddings in {tmp_path / 'out'} is whole." in said
    assert f"Run {run.run_id} of stage 'adapt-de' is not marked as finished, though the stage is." in said
    assert Artifact.load(tmp_path / "out", Kind.EMBEDDINGS).fingerprint == undisturbed
    kept = (tmp_path / "out/history.jsonl").read_text().splitlines()
    assert len(kept) == STEPS


def test_a_stage_does_not_begin_while_the_server_is_down_and_then_does(
    proxy: Proxy, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enter() -> None:
        with tracking.stage(parent, "adapt-de"):
            entered.append(parent)

    entered: list[str] = []
    proxy.down()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with pytest.raises(TrackingError, match=r"localhost.* See that the server is up"):
        enter()
    assert entered == []
    proxy.up()
    enter()
    assert entered == [parent]


def test_a_stage_that_is_stopped_does_not_wait_for_a_server_that_is_down(proxy: Proxy, parent: str) -> None:
    """The wait is a minute here, and a spot notice gives half of one; the test's own limit is the runner's."""

    def stop() -> None:
        with tracking.stage(parent, "adapt-de") as run:
            proxy.down()
            run.watch(TrainingMetrics(1, 1, 1.0, 1.0, 1.0, 1.0))
            raise SystemExit

    with pytest.raises(SystemExit):
        stop()


def a_stage(recipe: Recipe, made: Artifact) -> int:
    """All that a pipeline's step asks of MLflow, from the pipeline's run to the registered version."""
    parent = tracking.open_run(recipe, "language")
    with tracking.stage(parent, "bundle") as run:
        run.watch(TrainingMetrics(1, 512, 1e6, 0.1, 4.0, 1e-3))
        run.record(made, {"accuracy": 0.5})
        run.log_artifact(made, "kept")
        version = tracking.register(
            f"{recipe.name}-model", made.folder, made.manifest.kind, run, {"score": 0.5}, (tracking.CHAMPION,)
        )
    tracking.close_run(parent)
    return version


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    with artifact.create(tmp_path / "made", Kind.EMBEDDINGS) as draft:
        draft.tensors("vocabulary", {"table_VD": torch.ones(4, 3)})
        draft.facts = {"language": "de"}
    return Artifact.load(tmp_path / "made", Kind.EMBEDDINGS)


def register(name: str, parent: str, made: Artifact) -> int:
    with tracking.stage(parent, "bundle") as run:
        return tracking.register(name, made.folder, Kind.EMBEDDINGS, run, {}, (tracking.CHAMPION,))


def runs_of(truth: MlflowClient, recipe: Recipe) -> list[Run]:
    experiment = truth.get_experiment_by_name(recipe.name)
    assert experiment
    return list(truth.search_runs([experiment.experiment_id]))


def require_one_of_each(truth: MlflowClient, recipe: Recipe, made: Artifact) -> None:
    (version,) = truth.search_model_versions(f"name='{recipe.name}-model'")
    assert (version.version, version.tags["fingerprint"]) == ("1", made.fingerprint)
    assert version.tags["score"] == "0.5"
    experiment = truth.get_experiment_by_name(recipe.name)
    assert experiment
    (model,) = truth.search_logged_models([experiment.experiment_id])
    assert (model.status, f"models:/{model.model_id}") == ("READY", version.source)
    assert truth.get_model_version_by_alias(f"{recipe.name}-model", tracking.CHAMPION).version == "1"


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.UNANSWERED])
def test_the_first_request_of_every_kind_may_fail_and_nothing_is_lost_or_made_twice(
    fault: Fault, proxy: Proxy, truth: MlflowClient, made: Artifact, tmp_path: Path
) -> None:
    recipe = RECIPE.model_copy(update={"name": f"healed-{fault.name.lower()}"})
    proxy.fail_first_of_each(fault)
    assert a_stage(recipe, made) == 1
    assert len(proxy.injected) >= 12
    require_one_of_each(truth, recipe, made)
    # MLflow repeats the request that creates a run, so one whose answer was lost leaves an empty run beside.
    runs = {run.info.run_name: run for run in runs_of(truth, recipe) if run.info.status == "FINISHED"}
    assert {*runs} == {"language", "bundle"}
    bundle = runs["bundle"]
    assert history(truth, bundle.info.run_id) == [(1, 4.0)]
    assert (bundle.data.params["fingerprint"], bundle.data.metrics["accuracy"]) == (made.fingerprint, 0.5)
    proxy.injected.clear()
    proxy.fail_first_of_each(fault)
    fetched = tracking.fetch(f"{recipe.name}-model", Kind.EMBEDDINGS, tmp_path / "out")
    kept = tracking.fetch_run_artifact(bundle.info.run_id, "kept", Kind.EMBEDDINGS, tmp_path / "kept")
    assert fetched.manifest == kept.manifest == made.manifest
    assert len(proxy.injected) >= 5


def test_reruns_after_a_failure_of_every_request_that_creates_register_nothing_twice(
    proxy: Proxy, truth: MlflowClient, made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt comes as far as the first request of a kind that has not failed yet."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    recipe = RECIPE.model_copy(update={"name": "reruns"})
    proxy.fail_first_of_each(Fault.UNANSWERED)
    decide = proxy.fault
    proxy.fault = lambda request: decide(request) if request.endswith(("/create", "/logged-models")) else Fault.NONE
    for failures in itertools.count():
        try:
            a_stage(recipe, made)
            break
        except UnreachableError:
            assert failures < len(proxy.injected)
    assert failures >= 2
    require_one_of_each(truth, recipe, made)


def test_a_failed_registration_says_that_the_artifact_is_whole_and_where(
    proxy: Proxy, parent: str, made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    proxy.fault = lambda request: Fault.REFUSED if "logged-models" in request else Fault.NONE
    with pytest.raises(TrackingError, match=f"The embeddings in {made.folder} is whole"):
        register("whole", parent, made)


def test_a_version_that_a_late_request_has_made_goes_with_the_next_registration(
    proxy: Proxy, truth: MlflowClient, parent: str, made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has given the first request up and repeated it when the server gets both."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    proxy.fault = lambda seen: Fault.HELD if seen == CREATE_VERSION and not proxy.injected else Fault.NONE
    assert register("late", parent, made) == 1
    proxy.released.set()
    proxy.wait_until(lambda: proxy.forwarded.count(CREATE_VERSION) == 2)
    assert len(truth.search_model_versions("name='late'")) == 2
    assert register("late", parent, made) == 1
    (version,) = truth.search_model_versions("name='late'")
    assert version.version == truth.get_model_version_by_alias("late", tracking.CHAMPION).version == "1"


def test_a_twin_that_somebody_points_an_alias_at_stays(
    proxy: Proxy, truth: MlflowClient, parent: str, made: Artifact
) -> None:
    assert register("pinned", parent, made) == 1
    source = str(truth.get_model_version("pinned", "1").source)
    same = {"tags": {"fingerprint": made.fingerprint}, "model_id": source.removeprefix("models:/")}
    for _ in range(2):
        truth.create_model_version("pinned", source, **same)
    truth.set_registered_model_alias("pinned", "theirs", "2")
    assert register("pinned", parent, made) == 1
    assert sorted(version.version for version in truth.search_model_versions("name='pinned'")) == ["1", "2"]


def test_thousands_of_points_arrive_in_few_requests(proxy: Proxy, truth: MlflowClient, parent: str) -> None:
    curve = [TrainingMetrics(step, step * 512, step * 1e6, step * 0.1, 1 / step, 1e-3) for step in range(1, 1001)]
    before = proxy.requests.count(LOG_BATCH)
    with tracking.stage(parent, "adapt-de") as run:
        for point in curve:
            run.watch(point)
    assert proxy.requests.count(LOG_BATCH) - before <= 1000 // 50  # 200 points at once, fewer on a busy machine
    assert history(truth, run.run_id) == losses(curve)
