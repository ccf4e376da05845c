"""Processes that are killed, asked to stop or replaced by another number of them: the run goes on and ends the same."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingraft.artifacts.manifest import read_manifest
from tests.training.distributed.launch import ROOT, environment, finished, kill_all, torchrun
from tests.training.distributed.project import STEPS, Project, alive, wait_for, workers_of
from tests.workshop import Workshop

pytestmark = pytest.mark.integration
CLOSE = 1e-5
"""After 120 steps; differences of another order of sums grow with training."""
_SECONDS = 90
"""Far from the half hour after which Gloo gives up, and enough for a machine that others use too."""


@pytest.fixture(scope="module")
def project(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With `whole`, what an uninterrupted run of one process learns."""
    made = Project(workshop, tmp_path_factory.mktemp("project"))
    assert finished(made.on_one("whole")).returncode == 0
    return made


def goes_on(project: Project, command: list[str], out: str) -> None:
    """Run a command to the end; it must go on from a checkpoint, and end as the uninterrupted run did."""
    assert project.kept(out)
    done = finished(command)
    assert done.returncode == 0, done.stderr
    assert "going on after step" in done.stderr
    assert project.kept(out) == []
    assert read_manifest(project.folder / out).cost.steps == STEPS
    assert project.apart("whole", out) < CLOSE


@pytest.mark.parametrize("grows", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_another_number_of_processes_ends_what_was_killed(project: Project, grows: bool) -> None:
    commands = project.on_two(f"killed-{grows}"), project.on_one(f"killed-{grows}")
    first, then = reversed(commands) if grows else commands
    with project.under_way(first, f"killed-{grows}", step=10) as process:
        kill_all(process)
    goes_on(project, then, f"killed-{grows}")


@pytest.mark.nightly
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_torchrun_that_is_asked_to_stop_leaves_a_checkpoint(project: Project, asked: signal.Signals) -> None:
    """Workers end with 75 or 130; torchrun itself makes 1 of it, for which `--processes` is the remedy."""
    out = f"stopped-{asked.name}"
    with project.under_way(project.on_two(out), out, step=10) as process:
        process.send_signal(asked)
        _, told = process.communicate(timeout=_SECONDS)
    assert process.returncode == 1
    assert told.count("stopped: asked to stop after step") == 1
    goes_on(project, project.on_two(out), out)


@pytest.mark.parametrize(
    ("asked", "code"), [pytest.param(signal.SIGTERM, 75, marks=pytest.mark.nightly), (signal.SIGINT, 130)]
)
def test_a_command_with_processes_that_is_asked_to_stop_ends_with_the_code_of_one_process(
    project: Project, asked: signal.Signals, code: int
) -> None:
    out = asked.name
    with project.under_way(project.spread(out), out, step=10) as process:
        process.send_signal(asked)
        _, told = process.communicate(timeout=_SECONDS)
    assert process.returncode == code, told
    assert told.count("stopped: asked to stop") == 1
    goes_on(project, project.spread(out), out)


@pytest.mark.nightly
def test_a_worker_that_is_asked_to_stop_takes_all_with_it(project: Project) -> None:
    with project.under_way(project.spread("asked"), "asked", step=10) as process:
        os.kill(workers_of(process)[1], signal.SIGTERM)
        _, told = process.communicate(timeout=_SECONDS)
    assert process.returncode == 75, told
    goes_on(project, project.on_one("asked"), "asked")


@pytest.mark.parametrize(
    ("rank", "way"),
    [
        (1, "torchrun"),
        pytest.param(0, "processes", marks=pytest.mark.nightly),
        pytest.param(0, "torchrun", marks=pytest.mark.nightly),
        pytest.param(1, "processes", marks=pytest.mark.nightly),
    ],
)
def test_a_lost_worker_ends_the_run_within_seconds(project: Project, rank: int, way: str) -> None:
    out = f"lost-{rank}-{way}"
    command = project.on_two(out) if way == "torchrun" else project.spread(out)
    with project.under_way(command, out, step=10) as process:
        began = time.monotonic()
        os.kill(workers_of(process)[rank], signal.SIGKILL)
        _, told = process.communicate(timeout=_SECONDS)
        assert time.monotonic() - began < _SECONDS
    assert process.returncode == 1
    assert ("exit code -9" if way == "processes" else "SIGKILL") in told
    goes_on(project, command, out)


@pytest.mark.nightly
def test_a_lost_worker_is_replaced_where_torchrun_may_restart(project: Project) -> None:
    with project.under_way(project.on_two("again", "--max-restarts", "1"), "again", step=10) as process:
        os.kill(workers_of(process)[1], signal.SIGKILL)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert "going on after step" in told
    assert project.apart("whole", "again") < CLOSE


@pytest.mark.nightly
def test_workers_whose_launcher_is_killed_leave_a_checkpoint_and_go(project: Project) -> None:
    with project.under_way(project.on_two("orphans"), "orphans", step=10) as process:
        workers = workers_of(process)
        assert sorted(workers) == [0, 1]
        process.kill()
        wait_for(lambda: not any(map(alive, workers.values())))
        assert not (project.folder / "orphans").exists()
    goes_on(project, project.on_two("orphans"), "orphans")


@pytest.mark.parametrize("way", ["torchrun", pytest.param("processes", marks=pytest.mark.nightly)])
def test_a_batch_that_three_processes_cannot_divide_is_an_error_and_no_hang(project: Project, way: str) -> None:
    out = f"three-{way}"
    command = project.spread(out, 3) if way == "processes" else project.on_two(out, "--nproc-per-node", "3")
    done = finished(command, timeout_s=60)
    assert done.returncode == 1
    assert "error: batch_blocks 16 in micro-batches of any size cannot be divided over 3 processes" in done.stderr
    assert not list(project.folder.glob(f"*{out}*"))


def test_two_processes_agree_on_a_precision_that_both_measure(workshop: Workshop, tmp_path: Path) -> None:
    project = Project(workshop, tmp_path, precision="auto")
    with project.under_way(project.on_two("auto"), "auto", step=5) as process:
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=_SECONDS)
    chosen = "bf16" if "precision bf16: " in told else "fp32"
    done = finished(project.on_one("auto"))
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "auto").record["precision"] == chosen


def test_torchrun_is_refused_for_commands_that_do_not_train(project: Project) -> None:
    done = finished(torchrun("lingraft", "verify", str(project.folder / "whole")), timeout_s=60)
    assert done.returncode == 1
    assert "2 processes were started for `verify`, which is for one" in done.stderr


@pytest.mark.nightly
def test_the_commands_of_the_page_on_several_gpus_train(workshop: Workshop, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "several-gpus.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:lingraft|torchrun) .*$", page, re.MULTILINE)
    Project(workshop, tmp_path)
    for name, folders in (("blocks", workshop.blocks), ("tokenizer", workshop.tokenizers)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "en").symlink_to(folders["en"])
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in commands:
        done = subprocess.run(
            command.split(),
            cwd=tmp_path,
            env=environment() | {"PATH": programs},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert len(commands) == 2
    made = [read_manifest(tmp_path / out) for out in ("primary", "primary-too")]
    assert [manifest.record["processes"] for manifest in made] == [2, 2]
    assert made[0].fingerprints == made[1].fingerprints
