"""Local runs that go wrong: what the user is told, and what tracking says afterwards."""

import builtins
import contextlib
import json
import logging
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from kfp import dsl
from kfp.local import logging_utils
from kfp.pipeline_spec import pipeline_spec_pb2
from mlflow import MlflowClient

from components.step import step
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import MANIFEST
from lingraft.config.search import SEARCH_STORAGE
from lingraft.console import PlannedStep, TotalProgress
from lingraft.errors import ArtifactError, LingraftError, RecipeError
from lingraft.signals import Interruption
from pipelines import build, local
from pipelines.__main__ import run
from pipelines.cluster import StepSettings
from pipelines.forkserver import StepProcess, _run
from pipelines.opening import opened
from tests.fixtures.forked import moments
from tests.pipelines import endless
from tests.pipelines.finished import TINY, runs_of, tiny
from tests.tracking_stores import quiet, sqlite_store
from tests.training.distributed.launch import ROOT, family_of
from tests.workshop import Workshop, changed

pytestmark = quiet


@step
def ends_badly(run: dsl.Input[dsl.Artifact], killed: bool) -> None:
    import os
    import signal
    from pathlib import Path

    from lingraft import tracking
    from lingraft.errors import TrainingError

    with tracking.stage(Path(run.path).read_text(), "ends-badly"):
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise TrainingError("the loss is not finite")


@pytest.mark.parametrize(("killed", "status"), [(False, "FAILED"), (True, "KILLED")], ids=["fails", "is killed"])
def test_a_step_that_ends_badly_is_told_and_leaves_no_tracking_run_open(
    tmp_path: Path, killed: bool, status: str
) -> None:
    recipe = tiny(tmp_path)

    @dsl.pipeline(name="bad")
    def pipeline() -> None:
        with opened(recipe, "tiny.toml", "language", StepSettings(recipe.cluster, {}), ["de"]) as (_, run):
            ends_badly(run=run, killed=killed)

    with sqlite_store(tmp_path) as uri, pytest.raises(local.PipelineFailedError) as caught:
        local.run(pipeline, tmp_path / "out")
    message, _, log = str(caught.value).partition("\nThe whole log: ")
    assert ("the loss is not finite" in message) != killed
    assert ("the loss is not finite" in Path(log).read_text(encoding="utf-8")) != killed
    parent, stages = runs_of(MlflowClient(uri), "tiny")["language"]
    assert (parent.info.status, stages["ends-badly"].info.status) == (status, status)
    assert parent.info.end_time is not None
    assert parent.data.tags["kfp_run"]


def test_a_pipeline_whose_inputs_are_wrong_says_all_that_is_and_opens_no_run(tmp_path: Path) -> None:
    pipeline = build.source_pipeline(tiny(tmp_path))
    for language in ("en", "de", "tr"):
        (tmp_path / "text" / f"{language}.jsonl").write_text("no object\n", encoding="utf-8")
    with sqlite_store(tmp_path) as uri, pytest.raises(local.PipelineFailedError) as caught:
        local.run(pipeline, tmp_path / "out")
    for language in ("en", "de", "tr"):
        assert f"{language}: {tmp_path / 'text' / language}.jsonl, line 1: not JSON" in str(caught.value)
    assert MlflowClient(uri).get_experiment_by_name("tiny") is None


def test_tracking_goes_beside_the_results_unless_the_environment_says_where(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ):
        for name in ("MLFLOW_TRACKING_URI", SEARCH_STORAGE):
            os.environ.pop(name, None)
        local.set_up(tmp_path / "out")
        assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/out/mlflow.db"
        assert os.environ[SEARCH_STORAGE] == f"sqlite:///{tmp_path}/out/optuna.db"
        os.environ["MLFLOW_TRACKING_URI"] = "http://tracking.example:5000"
        local.set_up(tmp_path / "other")
        assert os.environ["MLFLOW_TRACKING_URI"] == "http://tracking.example:5000"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot write .*file/out"):
        local.run(build.source_pipeline(tiny(tmp_path)), tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("name", "dropped", "error", "words"),
    [
        ("languages", [], LingraftError, "no pipeline 'languages'; there are source, depth-search, language"),
        ("source", ["de"], LingraftError, "are for the pipeline 'language', and not for 'source'"),
        ("depth-search", [], RecipeError, r"no \[search\]"),
        ("paper", [], RecipeError, r"has no \[paper\]"),
    ],
)
def test_a_pipeline_that_cannot_be_run_is_refused(
    name: str, dropped: list[str], error: type[LingraftError], words: str, tmp_path: Path
) -> None:
    text = TINY.read_text(encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(re.sub(r"\[search\]\n(.+\n)+", "", text), encoding="utf-8")
    with pytest.raises(error, match=words):
        run(name, tmp_path / "recipe.toml", drop_language=dropped)


@pytest.fixture
def given(workshop: Workshop) -> dict[str, str]:
    """What the endless pipeline trains on."""
    recipe = changed(workshop.recipe, "pretraining", steps=10**6, log_every_steps=5)
    blocks, tokenizer = workshop.blocks["en"], workshop.tokenizers["en"]
    return {"recipe": recipe.to_json(), "blocks": str(blocks), "tokenizer": str(tokenizer)}


def test_a_pipeline_that_is_asked_to_stop_ends_with_the_checkpoint_of_the_step_that_trained(
    given: dict[str, str], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    stop_at(made.with_name("made.begun"))
    with pytest.raises(Interruption, match=r"^asked to stop after step (\d+); step \1 is kept in") as caught:
        local.run(endless.pipeline, tmp_path / "runs", made=str(made), **given)
    assert caught.value.exit_code == 75
    assert str(caught.value).count("Run the same again") == 1
    number = re.findall(r"after step (\d+)", str(caught.value))[0]
    kept = sorted(place.name for place in made.with_name("made.training").glob("step-*"))
    assert kept[-1] == f"step-{int(number):0{len(kept[-1]) - 5}}"
    assert not made.with_name("made.next").exists()
    assert (tmp_path / "runs" / "trains.log").read_text(encoding="utf-8").count("Interruption: asked to stop") == 1


@pytest.mark.integration
@pytest.mark.parametrize("word", ["training", "loss"], ids=["as its first step starts", "while it trains"])
def test_ctrl_c_on_a_terminal_reaches_steps_once_and_ends_in_no_traceback(
    word: str, given: dict[str, str], tmp_path: Path
) -> None:
    """It goes to the whole group, and so to the process that is forked, even before that has made its imports."""
    (tmp_path / "recipe.json").write_text(given["recipe"], encoding="utf-8")
    arguments = [str(tmp_path), str(tmp_path / "recipe.json"), given["blocks"], given["tokenizer"]]
    with subprocess.Popen(
        [sys.executable, "-m", endless.__name__, *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        heard_until(process, word)
        family = family_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=local._PATIENCE_S)  # after which it would be killed
        finally:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert process.returncode == 130, told
    assert (told.count("stopped: asked to stop"), "Traceback" in told) == (1, False)
    if word == "loss":
        assert "is kept in" in told
    assert not (tmp_path / "made.next").exists()


def heard_until(process: subprocess.Popen[str], word: str) -> None:
    """Read what a process writes to its output, up to the first line with a word."""
    heard = ""
    for line in process.stdout or ():
        heard += line
        if word in line:
            return
    raise AssertionError(f"ended without {word!r}: {heard}{process.communicate()[1]}")


@step
def reuses(result: str) -> None:
    print(f"text of 'de': made before from the same, taken from {result}")


def test_only_a_result_of_an_earlier_run_counts_as_done_before(tmp_path: Path) -> None:
    earlier, own = (tmp_path / name for name in ("earlier", "own"))
    for folder in (earlier, own):
        write_json(folder / "result" / MANIFEST, {})

    @dsl.pipeline(name="reuses")
    def pipeline(earlier: str, own: str) -> None:
        reuses(result=own).after(reuses(result=earlier))

    progress = TotalProgress([PlannedStep("reuses")] * 2)
    for folder, seconds in ((earlier, -3600), (own, 1)):
        os.utime(folder / "result" / MANIFEST, 2 * (time.time() + seconds,))
    local.run(pipeline, tmp_path / "out", progress, earlier=str(earlier), own=str(own))
    assert (progress.started, progress.done_earlier) == (2, 1)


@step
def deaf(mark: str) -> None:
    import signal
    import time
    from pathlib import Path

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(mark).touch()
    time.sleep(600)


def stop_at(mark: Path) -> None:
    """Ask this process to stop when there is a file."""

    def ask() -> None:
        while not mark.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask, daemon=True).start()


def test_a_step_that_does_not_listen_is_killed_and_its_tracking_run_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny(tmp_path)

    @dsl.pipeline(name="stopped")
    def pipeline(mark: str) -> None:
        with opened(recipe, "tiny.toml", "language", StepSettings(recipe.cluster, {}), ["de"]) as (_, run):
            deaf(mark=mark).after(run.task)

    monkeypatch.setattr(local, "_PATIENCE_S", 1)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP)]
    stop_at(tmp_path / "mark")
    with sqlite_store(tmp_path) as uri, pytest.raises(Interruption) as caught:
        local.run(pipeline, tmp_path / "out", mark=str(tmp_path / "mark"))
    assert caught.value.exit_code == 75
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP)] == before
    parent, _ = runs_of(MlflowClient(uri), "tiny")["language"]
    assert parent.info.status == "KILLED"


@step
def ends(folder: str) -> None:
    from pathlib import Path

    from lingraft.artifacts.failures import load_outcome, require_success, write_outcome

    for language, refused in (("de", None), ("tr", "masked accuracy on the primary is 1.00%.")):
        write_outcome(language, Path(folder), Path(folder) / language, refused)
    bundles = {"demo-bundle-topic": "version 4 is registered, and not promoted: el would leave production."}
    require_success([load_outcome(Path(folder) / language) for language in ("de", "tr")], bundles)


def test_what_the_gate_refused_is_on_the_screen_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @dsl.pipeline(name="ends")
    def pipeline(folder: str) -> None:
        ends(folder=folder)

    with pytest.raises(local.PipelineFailedError, match=r"in production stays as it is. demo-bundle-topic: version 4"):
        local.run(pipeline, tmp_path / "out", folder=str(tmp_path))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("outcome of ")]
    assert lines == [
        "outcome of de: learned, judged and registered",
        "outcome of tr: registered, and not promoted: masked accuracy on the primary is 1.00%.",
        "outcome of demo-bundle-topic: version 4 is registered, and not promoted: el would leave production.",
    ]


@step
def says(line: str) -> None:
    print(line)


_PROGRAM = """
import sys

def ends_with(code: int):
    sys.exit(code)

def tells(code: int):
    from tests.pipelines import after_imports
    print("found", after_imports.PROCESS, after_imports.THREADS, after_imports.GPU)

def tells_threads(code: int):
    import torch
    print("threads", torch.get_num_threads())
"""
_SHELL = ["sh", "-ec", "python3 -m kfp.dsl.executor_main"]


def of_program(function: str, code: int, threads: int | None = None) -> StepProcess:
    told = {"inputs": {"parameterValues": {"code": code}}, "outputs": {"outputFile": "/dev/null"}}
    arguments = ["--executor_input", json.dumps(told), "--function_to_execute", function]
    return StepProcess([*_SHELL, _PROGRAM, *arguments], os.environ, threads)


def test_of_steps_that_run_at_once_each_has_its_own_exit_code() -> None:
    """Where several end while others start, multiprocessing alone loses some."""

    def ended(code: int) -> int:
        step = of_program("ends_with", code)
        assert "executor_input" in "".join(step.lines())
        return step.wait()

    codes = [number % 5 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(ended, codes)] == codes


def test_the_process_that_is_forked_has_no_thread_and_no_gpu_and_leaves_stops_to_the_local_run() -> None:
    """Its forks inherit what it blocks; until they handle signals, one would end them with a traceback."""
    step = of_program("tells", 0)
    [found] = re.findall(r"found (\d+) (\d+) (\w+)", "".join(step.lines()))
    forked: int = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    assert (step.wait(), found) == (0, (str(forked), "1", "False"))
    blocked = int(Path(f"/proc/{forked}/status").read_text().split("SigBlk:")[1].split()[0], 16)
    assert [each for each in (signal.SIGINT, signal.SIGTERM) if not blocked >> (each - 1) & 1] == []
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}


@step
def finds_the_disk_full() -> None:
    """Raise an error that is not one of ours."""
    raise OSError(28, "No space left on device")


def test_a_step_that_ends_in_an_error_of_another_library_says_which(tmp_path: Path) -> None:
    @dsl.pipeline(name="full")
    def pipeline() -> None:
        finds_the_disk_full()

    with pytest.raises(
        local.PipelineFailedError, match=r"finds-the-disk-full'\. OSError: \[Errno 28\] No space left on"
    ):
        local.run(pipeline, tmp_path / "out")


def test_a_step_writes_to_its_output_before_it_takes_signals() -> None:
    """A stop that is passed on as soon as it says that it is ready may end it in a traceback, which is for the log."""
    fork = multiprocessing.get_context("fork")
    output, theirs = fork.Pipe(duplex=False)
    os.set_blocking(theirs.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs.fileno(), bytes(select.PIPE_BUF))
    os.set_blocking(theirs.fileno(), True)
    process = fork.Process(target=_run, args=("", [], {}, theirs))
    process.start()
    try:
        streams = [Path(f"/proc/{process.pid}/fd/{stream.fileno()}") for stream in (sys.stdout, sys.stderr)]
        expected = Path(f"/proc/self/fd/{theirs.fileno()}").readlink()
        for _ in moments(0.01, lambda: "it waits to say that it is ready"):
            assert process.is_alive()
            if [stream.readlink() for stream in streams] == [expected, expected]:
                break
    finally:
        process.kill()
        process.join()
        output.close()
        theirs.close()


def test_print_and_logging_are_afterwards_what_they_were(tmp_path: Path) -> None:
    class TwoAtOnce:
        """As steps that run at once leave them: the last to end puts back what another had set."""

        name = "two-at-once"
        pipeline_spec = pipeline_spec_pb2.PipelineSpec()

        def __call__(self) -> SimpleNamespace:
            builtins.print = lambda *_, **__: None
            first, last = logging_utils.local_logger_context(), logging_utils.local_logger_context()
            first.__enter__()
            last.__enter__()
            first.__exit__(None, None, None)
            last.__exit__(None, None, None)
            return SimpleNamespace(outputs={})

    root = logging.getLogger()
    before = builtins.print, [*root.handlers], root.level
    with mock.patch.dict(os.environ):
        local.run(TwoAtOnce(), tmp_path)
    assert (builtins.print, root.handlers, root.level) == before
