"""What `make images-check` does around the images, without one: that takes root, and minutes."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from tests.docker.scripts import FOLDER, script

DEMO = FOLDER.parent / "recipes" / "demo-scratch.toml"
TOLD = """#!/bin/sh
echo "$*" >> "$TOLD"
case "$*" in *" mount "*) echo /root-of-it ;; esac
"""
HOLDS = """
import sys, time
from containers import container
from lingraft.signals import interruptible
with interruptible(), container("image") as (_, root):
    print(root, flush=True)
    time.sleep(60)
"""


def alive(group: int) -> list[int]:
    """Processes of a group."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = place.read_text().rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, its_group, *_ = rest.split()
        if int(its_group) == group and state != "Z":
            found.append(int(place.parent.name))
    return found


@pytest.mark.parametrize(
    ("written", "command"),
    [
        (["CMD", "python", "-c", "1"], ["python", "-c", "1"]),
        (["CMD-SHELL", "ask; exit"], ["/bin/sh", "-c", "ask; exit"]),
    ],
)
def test_a_health_check_is_run_as_docker_runs_it(written: list[str], command: list[str]) -> None:
    assert script("containers").health_command({"Healthcheck": {"Test": written}}) == command


@pytest.mark.parametrize("config", [{}, {"Healthcheck": None}, {"Healthcheck": {"Test": ["NONE"]}}])
def test_an_image_without_a_health_check_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(SystemExit, match="the image has no health check that can be run"):
        script("containers").health_command(config)


def test_pretraining_is_shortened_and_nothing_else() -> None:
    text = DEMO.read_text(encoding="utf-8")
    whole, short = Recipe.load(DEMO), Recipe.parse(tomllib.loads(script("check").shortened(text, 40)))
    assert short.pretraining == whole.pretraining.model_copy(update={"steps": 40, "warmup_steps": 4})
    assert short.model_copy(update={"pretraining": whole.pretraining}) == whole


def test_a_recipe_that_cannot_be_shortened_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"\[pretraining\] has no warmup_steps"):
        script("check").shortened("[pretraining]\nsteps = 7\n\n[adaptation]\nwarmup_steps = 1\n", 40)


def test_nothing_is_left_of_a_group_though_its_first_process_has_ended() -> None:
    with script("containers").group(["sh", "-c", "sleep 60 & sleep 60 & exit 3"]) as process:
        assert process.wait() == 3
        assert len(alive(process.pid)) == 2
    until = time.monotonic() + 10
    while alive(process.pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_container_is_removed_when_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "buildah").write_text(TOLD)
    (tmp_path / "buildah").chmod(0o755)
    path = os.pathsep.join((str(FOLDER), str(FOLDER.parent)))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": str(tmp_path / "told")}
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(
        command, env=environment | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "/root-of-it\n"
        process.send_signal(signal.SIGTERM)
    told = [line.split()[2:] for line in (tmp_path / "told").read_text().splitlines()]
    name = told[0][3]
    assert told == [["from", "--pull-never", "--name", name, "image"], ["mount", name], ["umount", name], ["rm", name]]
