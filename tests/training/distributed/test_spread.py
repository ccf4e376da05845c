"""A stage on several processes, for whoever calls it: one artifact, one curve, one tracking run, one error."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from kfp import dsl
from mlflow import MlflowClient

from components.step import step
from lingraft import ranks
from lingraft.config.cluster import Cluster, Profile
from lingraft.errors import RecipeError, TrainingError
from lingraft.jobs.training import PretrainingJob
from lingraft.signals import EXIT_CODES, Interruption, interruptible
from lingraft.stages import pretrain
from lingraft.steps import data
from lingraft.steps.run_job import run_job
from lingraft.training import metrics
from lingraft.training.distributed import launch
from lingraft.training.schedule import TrainingMetrics, ignore_metrics, read_curve
from pipelines.cluster import StepSettings, configure_training
from tests.fixtures import forked
from tests.pipelines.finished import runs_of
from tests.prometheus import asked, port_for_metrics
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet


def briefly(workshop: Workshop) -> Workshop:
    recipe = changed(workshop.recipe, "pretraining", steps=9, log_every_steps=2, warmup_steps=2)
    return Workshop(**(vars(workshop) | {"recipe": recipe}))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ranks.PROCESSES_VARIABLE, "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.usefixtures("two")
@pytest.mark.integration
def test_whoever_watches_a_spread_stage_hears_of_every_point_once(workshop: Workshop, tmp_path: Path) -> None:
    shop, heard = briefly(workshop), list[TrainingMetrics]()
    handlers = [signal.getsignal(number) for number in EXIT_CODES]
    made = pretrain.pretrain(
        shop.recipe, shop.blocks["en"], shop.tokenizers["en"], out=tmp_path / "out", watch=heard.append
    )
    assert [signal.getsignal(number) for number in EXIT_CODES] == handlers
    assert [point.step for point in heard] == [2, 4, 6, 8, 9]
    assert heard == read_curve(tmp_path / "out")
    assert made.manifest.record["processes"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


class AskedEarly(ThreadPoolExecutor):
    """Asks this process to stop when it has begun to start others."""

    def submit(self, *work: Any) -> Any:
        begun = super().submit(*work)
        signal.raise_signal(signal.SIGTERM)
        return begun


def launch_while_asked_to_stop(folder: Path) -> None:
    vars(launch)["ThreadPoolExecutor"] = AskedEarly
    try:
        with interruptible():
            launch._run(2, folder, print)
    except Interruption as interruption:
        sys.exit(interruption.exit_code)


def test_a_stop_before_the_processes_are_started_leaves_nobody_waiting(tmp_path: Path) -> None:
    assert forked.start(launch_while_asked_to_stop, tmp_path, log=tmp_path / "log").ends(60) == 75


@pytest.mark.usefixtures("two")
@pytest.mark.integration
def test_steps_that_a_spread_stage_leaves_out_are_counted_once_where_it_was_called(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_for_metrics(monkeypatch)
    recipe = changed(workshop.recipe, "pretraining", learning_rate=1e38, log_every_steps=100)
    watch = metrics.expose_metrics("spread", ignore_metrics)
    with pytest.raises(TrainingError, match="not finite"):
        pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], tmp_path / "out", watch)
    assert asked(port)['lingraft_training_left_out_steps_total{stage="spread"}'] == 11  # ten may be


@pytest.mark.usefixtures("two")
@pytest.mark.integration
def test_a_spread_step_has_one_tracking_run_with_its_whole_curve(workshop: Workshop, tmp_path: Path) -> None:
    shop, run = briefly(workshop), tmp_path / "run"
    recipe = shop.recipe.to_json()
    with sqlite_store(tmp_path) as uri:
        data.open_run(recipe, "source", run)
        job = PretrainingJob(
            recipe=recipe, blocks=shop.blocks["en"], tokenizer=shop.tokenizers["en"], out=tmp_path / "out"
        )
        shown = run_job(job, run)
        stage = runs_of(MlflowClient(uri), shop.recipe.name)["source"][1]["pretrain"]
        history = MlflowClient(uri).get_metric_history(stage.info.run_id, "loss")
    assert shown["steps"] == 9
    assert [point.step for point in history] == [2, 4, 6, 8, 9]
    assert stage.info.status == "FINISHED"
    assert stage.data.params["processes"] == "2"


@pytest.mark.parametrize("wanted", ["0", "two"])
def test_a_number_of_processes_that_is_none_is_refused(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.setenv(ranks.PROCESSES_VARIABLE, wanted)
    out = tmp_path / "out"
    with pytest.raises(RecipeError, match=f"{ranks.PROCESSES_VARIABLE} is '{wanted}'"):
        pretrain.pretrain(workshop.recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, ignore_metrics)


def test_all_accelerators_are_as_many_processes_as_there_are(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ranks.PROCESSES_VARIABLE, ranks.ALL_PROCESSES)
    recipe = briefly(workshop).recipe
    made = pretrain.pretrain(
        recipe, workshop.blocks["en"], workshop.tokenizers["en"], tmp_path / "primary", ignore_metrics
    )
    assert made.manifest.record["processes"] == max(1, torch.cuda.device_count())


def test_a_step_with_accelerators_trains_on_as_many_processes() -> None:
    @step
    def work() -> None:
        return None

    @dsl.pipeline(name="two-steps")
    def pipeline() -> None:
        for accelerator in (None, "nvidia.com/gpu"):
            profile = Profile(accelerator=accelerator)
            configure_training(work(), StepSettings(Cluster(training=profile), {}), "adaptation")

    executors = pipeline.pipeline_spec.deployment_spec["executors"]
    variables = [executors[name]["container"]["env"] for name in ("exec-work", "exec-work-2")]
    found = [{pair["name"]: pair["value"] for pair in given}.get(ranks.PROCESSES_VARIABLE) for given in variables]
    assert found == [None, "all"]
