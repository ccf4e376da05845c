"""Many faults at random moments, from the first file read to the last one written; `make soak` prints how many."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.interrupted.project import STAGES, Project, being_written, checkpoints, curve, require_same, training

FAULTS = int(os.environ.get("SOAK_FAULTS", "25"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
ENDS = {0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 75, 130}
"""A signal that comes before there is anything to lose ends a process as it ends any other."""


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_survives_many_faults_at_any_moment(
    project: Project, tmp_path: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, draw, injected = tmp_path / "out", random.Random(f"{SEED} {stage}"), Counter[str]()
    begun, finished = time.monotonic(), 0
    assert project.start(stage, out).ends() == 0
    whole_s = time.monotonic() - begun
    while sum(injected.values()) < FAULTS:
        if out.exists():
            finish(project, stage, out)
            finished += 1
        fault = draw.choice([killed, killed_in_a_checkpoint, asked_to_stop, bit_flipped])
        injected[fault.__name__] += fault(project, stage, out, draw, whole_s)
    finish(project, stage, out)
    with capsys.disabled():
        print(f"\n{stage}: {dict(injected)}; arrived at the same bits {finished + 1} times")


def finish(project: Project, stage: str, out: Path) -> None:
    """Go on to the end, unless it is reached: all is as without faults. Make room for the next training."""
    if not out.exists() or checkpoints(out):
        command = project.start(stage, out)
        assert command.ends() == 0, command.said
    elif any(training(out).glob(".step-*")):  # killed while it removed what it needed no more: the next call does
        command = project.start(stage, out)
        assert command.ends() == 1
        assert f"{out} exists already" in command.said
    for place in training(out).glob("set-aside-*"):
        shutil.rmtree(place)
    if training(out).exists():
        training(out).rmdir()
    require_same(stage, out, project.whole(stage))
    for folder in (out, curve(out)):
        shutil.rmtree(folder, ignore_errors=True)


def killed(project: Project, stage: str, out: Path, draw: random.Random, whole_s: float) -> bool:
    command = project.start(stage, out)
    time.sleep(draw.uniform(0, whole_s))
    return command.kill() == -signal.SIGKILL


def killed_in_a_checkpoint(project: Project, stage: str, out: Path, draw: random.Random, whole_s: float) -> bool:
    later = time.monotonic() + draw.uniform(0, whole_s)
    command = project.start(stage, out)
    code = command.signalled_when(signal.SIGKILL, lambda: time.monotonic() > later and being_written(out))
    return code == -signal.SIGKILL


def asked_to_stop(project: Project, stage: str, out: Path, draw: random.Random, whole_s: float) -> bool:
    command = project.start(stage, out)
    time.sleep(draw.uniform(0, whole_s))
    command.send(draw.choice([signal.SIGTERM, signal.SIGINT]))
    code = command.ends()
    assert code in ENDS, command.said
    return code != 0


def bit_flipped(project: Project, stage: str, out: Path, draw: random.Random, whole_s: float) -> bool:
    killed(project, stage, out, draw, whole_s)
    if len(checkpoints(out)) < 2:
        return False
    path = draw.choice([*checkpoints(out)[-1].iterdir()])
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return True
