"""Steps in processes that are really killed, and what their launcher makes of that."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts import cache
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import InputFailedError, failure_reason, write_failure
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.jobs.data import TokenizerJob
from lingraft.jobs.training import PretrainingJob
from lingraft.signals import Interruption
from lingraft.steps import data
from lingraft.steps.launch import child, launcher
from lingraft.steps.launch.calls import AttemptResult, Call, StepAnswer
from tests.fixtures import forked
from tests.steps.launch import small_steps
from tests.tracking_stores import quiet, sqlite_store
from tests.training.distributed.launch import children_of
from tests.workshop import TINY, Workshop, changed

pytestmark = quiet
STEPS = 80
KILLED_AFTER = 3
"""Steps that are kept; from there on the step goes on."""


@pytest.fixture
def run(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file that names a tracking run, with a place for results."""
    monkeypatch.setenv(cache.RESULTS_VARIABLE, str(tmp_path / "shared"))
    with sqlite_store(tmp_path):
        data.open_run(workshop.recipe.to_json(), "source", tmp_path / "run")
        yield str(tmp_path / "run")


@pytest.fixture
def inputs(workshop: Workshop, run: str) -> dict[str, str]:
    """Of a pretraining."""
    return {"run": run, "blocks": str(workshop.blocks["en"]), "tokenizer": str(workshop.tokenizers["en"])}


def pretraining(inputs: dict[str, str], out: Path, recipe: Recipe) -> PretrainingJob:
    return PretrainingJob(recipe=recipe, blocks=inputs["blocks"], tokenizer=inputs["tokenizer"], out=out)


def long(workshop: Workshop) -> Recipe:
    pretraining = {"steps": STEPS, "keep_every_s": 0.02, "log_every_steps": STEPS}
    return changed(workshop.recipe, "pretraining", **pretraining).model_copy(update={"threads": 1})


def pretrain(inputs: dict[str, str], out: Path, recipe: Recipe) -> Any:
    """Pretrain by a launcher whose steps are forks of it."""
    child.fork_steps()
    try:
        return launcher.run(pretraining(inputs, out, recipe), inputs["run"])
    except Interruption as interruption:
        raise SystemExit(interruption.exit_code) from interruption


def kill_steps(times: int) -> threading.Thread:
    """Kill the small step of this process as soon as it is there, as often as asked."""

    def kill() -> None:
        killed: set[int] = set()
        while len(killed) < times:
            for process in {*children_of(os.getpid())} - killed:
                if small_steps.__name__ in command_of(process):  # others are there for other tests
                    os.kill(process, signal.SIGKILL)
                    killed.add(process)
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def steps_kept(shared: Path) -> int:
    places = shared.glob("primary-*/result.training/step-*")
    return max((int(place.name.removeprefix("step-")) for place in places), default=0)


def test_a_step_that_is_killed_goes_on_where_it_was(workshop: Workshop, inputs: dict[str, str], tmp_path: Path) -> None:
    with forked.start(pretrain, inputs, tmp_path / "out", long(workshop), log=tmp_path / "log") as its_launcher:
        its_launcher.wait_until(lambda: steps_kept(tmp_path / "shared") > KILLED_AFTER)
        [step] = children_of(its_launcher.pid)
        os.kill(step, signal.SIGKILL)
        assert its_launcher.returns()["steps"] == STEPS
    assert "was killed: attempt 2 of 4" in its_launcher.said
    assert "going on after step" in its_launcher.said
    assert Artifact.load(tmp_path / "out", Kind.PRIMARY)


def test_a_step_that_is_killed_too_often_fails_alone_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(launcher.RETRIES, "1")
    monkeypatch.setattr(child, "step", small_steps)
    killer = kill_steps(times=2)
    work = small_steps.FillsAndWaits(recipe=Recipe.load(TINY), out=tmp_path / "out")
    found = launcher.run(work, isolated=True)
    killer.join()
    assert found == "left out"
    assert "was killed (attempt 2 of 2)" in str(failure_reason(tmp_path / "out"))


def test_an_error_that_nobody_mends_is_not_tried_again(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path
) -> None:
    greedy = changed(workshop.recipe, "encoder", block_tokens=16)
    its_launcher = forked.start(pretrain, inputs, tmp_path / "out", greedy, log=tmp_path / "log")
    assert its_launcher.ends() == 1
    assert re.search("LaunchError: .*block", its_launcher.said)
    assert "attempt 2" not in its_launcher.said


def test_what_may_heal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([AttemptResult(StepAnswer(error="MLflow is down", heals=True)), AttemptResult(StepAnswer(result=7))])
    monkeypatch.setattr(child, "attempt", lambda _: next(ends))
    assert launcher.run(small_steps.Waits(recipe=Recipe.load(TINY)), pause_s=0.0) == 7


def attempted(call: Call) -> AttemptResult:
    """Attempt a step that is a fork of its launcher."""
    child.fork_steps()
    return child.attempt(call)


def test_a_tracking_server_that_is_down_may_heal(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("LINGRAFT_TRACKING_WAIT_S", "0")
    call = Call.of(pretraining(inputs, tmp_path / "out", workshop.recipe), Path(inputs["run"]))
    ended: AttemptResult = forked.start(attempted, call, log=tmp_path / "log").returns()
    assert ended.heals
    assert "127.0.0.1" in str(ended.reason)


def test_a_step_whose_input_failed_is_left_out(tmp_path: Path) -> None:
    before, out = tmp_path / "before", tmp_path / "out"
    write_failure(before, "text of 'tr': no text")
    job = TokenizerJob(recipe=Recipe.load(TINY), text=before, out=out)
    with pytest.raises(InputFailedError, match="no text"):
        launcher.run(job)
    launcher.run(job, isolated=True)
    assert failure_reason(out) == "text of 'tr': no text"


def test_a_stop_is_passed_on_and_the_step_keeps_where_it_is(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path
) -> None:
    with forked.start(pretrain, inputs, tmp_path / "out", long(workshop), log=tmp_path / "log") as its_launcher:
        its_launcher.wait_until(lambda: steps_kept(tmp_path / "shared") >= KILLED_AFTER)
        its_launcher.send(signal.SIGTERM)
        assert its_launcher.ends() == 75
    assert KILLED_AFTER <= steps_kept(tmp_path / "shared") < STEPS
