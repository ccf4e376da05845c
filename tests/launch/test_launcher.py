"""Steps in processes that are really killed, and what their launcher makes of that."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lingraft import reuse
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.failures import InputFailedError, leave, why
from lingraft.launch import child, launcher
from lingraft.launch.calls import Answer, Call, Ended, LaunchError
from lingraft.steps import data
from tests.distributed.launch import children_of
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet


@pytest.fixture
def run(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file that names a tracking run, with a place for results."""
    monkeypatch.setenv(reuse.WHERE, str(tmp_path / "shared"))
    with sqlite_store(tmp_path):
        data.open_run(workshop.recipe.to_json(), "source", tmp_path / "run")
        yield str(tmp_path / "run")


@pytest.fixture
def inputs(workshop: Workshop, run: str) -> dict[str, str]:
    """Of a pretraining."""
    return {
        "run": run,
        "blocks_folder": str(workshop.blocks["en"]),
        "tokenizer_folder": str(workshop.tokenizers["en"]),
    }


def long(workshop: Workshop) -> Recipe:
    return changed(workshop.recipe, "pretraining", steps=400, keep_every_s=0.05).model_copy(update={"threads": 1})


def kill_when(is_time: Callable[[], bool], times: int) -> threading.Thread:
    """Kill the step, as often as asked, each time when it is time."""

    def kill() -> None:
        for _ in range(times):
            while not (is_time() and launched()):
                time.sleep(0.01)
            for process in launched():
                os.kill(process, signal.SIGKILL)
            time.sleep(1)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def launched() -> list[int]:
    """Our children that do a step; other tests have other ones."""
    ours = []
    for process in children_of(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"lingraft.launch.step" in Path(f"/proc/{process}/cmdline").read_bytes():
                ours.append(process)
    return ours


def steps_kept(shared: Path) -> int:
    places = shared.glob("primary-*/result.training/step-*")
    return max((int(place.name.removeprefix("step-")) for place in places), default=0)


def test_a_step_that_is_killed_goes_on_where_it_was(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = long(workshop)
    killer = kill_when(lambda: steps_kept(tmp_path / "shared") > 20, times=1)
    made = launcher.run("source.pretrain", inputs, {"out": str(tmp_path / "out")}, recipe=recipe.to_json())
    killer.join()
    assert made["steps"] == 400
    said = capfd.readouterr().err
    assert "was killed: attempt 2 of 4" in said
    assert "going on after step" in said
    assert Artifact.load(tmp_path / "out", Kind.PRIMARY)


def test_a_step_that_is_killed_too_often_fails_alone_with_the_reason(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, recipe = tmp_path / "out", long(workshop).to_json()
    monkeypatch.setenv(launcher.RETRIES, "1")
    kill_when(lambda: True, times=2)
    found = launcher.run("source.pretrain", inputs, {"out": str(out)}, isolated=True, otherwise={}, recipe=recipe)
    assert found == {}
    assert "was killed (attempt 2 of 2)" in str(why(out))


def test_an_error_that_nobody_mends_is_not_tried_again(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    greedy = changed(workshop.recipe, "encoder", block_tokens=16).to_json()
    with pytest.raises(LaunchError, match="block"):
        launcher.run("source.pretrain", inputs, {"out": str(tmp_path / "out")}, recipe=greedy)
    assert "attempt" not in capfd.readouterr().err


def test_what_may_heal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([Ended(Answer(error="MLflow is down", heals=True)), Ended(Answer(result=7))])
    monkeypatch.setattr(child, "attempt", lambda _: next(ends))
    assert launcher.run("language.depths_of", {}, {}, pause_s=0.0) == 7


def test_a_tracking_server_that_is_down_may_heal(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("LINGRAFT_TRACKING_WAIT_S", "0")
    arguments = inputs | {"out": str(tmp_path / "out"), "recipe": workshop.recipe.to_json()}
    ended = child.attempt(Call(step="source.pretrain", arguments=arguments))
    assert ended.heals
    assert "127.0.0.1" in str(ended.reason)


def test_a_step_whose_input_failed_is_left_out(tmp_path: Path) -> None:
    before, out = tmp_path / "before", tmp_path / "out"
    leave(before, "text of 'tr': no text")
    given = {"text_folder": str(before)}, {"out": str(out)}
    with pytest.raises(InputFailedError, match="no text"):
        launcher.run("data.train_tokenizer", *given)
    launcher.run("data.train_tokenizer", *given, isolated=True)
    assert why(out) == "text of 'tr': no text"


def test_a_stop_is_passed_on_and_the_step_keeps_where_it_is(
    workshop: Workshop, inputs: dict[str, str], tmp_path: Path
) -> None:
    call = tmp_path / "call.json"
    given = [inputs, {"out": str(tmp_path / "out")}, long(workshop).to_json()]
    call.write_text(json.dumps(given), encoding="utf-8")
    program = f"""
import json, sys
from pathlib import Path
from lingraft.launch import launcher
from lingraft.stopping import Interruption
inputs, outputs, recipe = json.loads(Path({str(call)!r}).read_text())
try:
    launcher.run("source.pretrain", inputs, outputs, recipe=recipe)
except Interruption as interruption:
    sys.exit(interruption.exit_code)
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    while steps_kept(tmp_path / "shared") < 10:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 75
    assert steps_kept(tmp_path / "shared") >= 10


def test_a_step_does_not_outlive_its_launcher(workshop: Workshop, inputs: dict[str, str], tmp_path: Path) -> None:
    call = tmp_path / "call.json"
    arguments = inputs | {"out": str(tmp_path / "out"), "recipe": long(workshop).to_json()}
    call.write_text(Call(step="source.pretrain", arguments=arguments).model_dump_json(), encoding="utf-8")
    program = f"""
from pathlib import Path
from lingraft.launch import child
from lingraft.launch.calls import Call
child.attempt(Call.model_validate_json(Path({str(call)!r}).read_bytes()))
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    while steps_kept(tmp_path / "shared") < 10:
        assert process.poll() is None
        time.sleep(0.01)
    [step] = children_of(process.pid)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{step}").exists() and "Z" not in Path(f"/proc/{step}/stat").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
