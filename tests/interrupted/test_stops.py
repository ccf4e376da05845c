"""SIGTERM, which spot machines get 25 seconds before they go, and Ctrl-C: a checkpoint, and an exit code of its own."""

import itertools
import random
import signal
import time
from pathlib import Path

import pytest

from tests.interrupted.project import STAGES, Project, recipe, steps_kept

pytestmark = pytest.mark.integration
NOTICE_S = 25
CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
DIFFERENT = {("adapt", signal.SIGTERM), ("finetune", signal.SIGINT)}


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param(*case, marks=[] if case in DIFFERENT else pytest.mark.nightly)
        for case in itertools.product(STAGES, CODES)
    ],
)
def test_a_stage_that_is_asked_to_stop_keeps_where_it_is_and_says_so(
    project: Project, tmp_path: Path, stage: str, number: signal.Signals
) -> None:
    out, draw = tmp_path / "out", random.Random(f"{stage} {number}")
    seldom = recipe(tmp_path / "seldom", keep_every_s=1000)
    first = project.start(stage, out)
    aim = draw.randint(1, 30)
    assert first.signalled_when(signal.SIGKILL, lambda: steps_kept(out) >= aim) == -signal.SIGKILL
    before = steps_kept(out)
    command = project.start(stage, out, recipe=seldom)
    command.wait_for_word("going on after")
    time.sleep(draw.uniform(0, 0.2))
    asked = time.monotonic()
    command.send(number)
    assert command.ends() == CODES[number], command.said
    assert time.monotonic() - asked < NOTICE_S
    assert steps_kept(out) >= before
    assert "stopped: asked to stop" in command.said
    assert "Run the same again to go on" in command.said
    project.goes_on_to_the_same(stage, out)


def test_a_stop_in_the_midst_of_training_loses_no_step(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = project.start("pretrain", out, recipe=recipe(tmp_path / "seldom", keep_every_s=1000))
    assert command.signalled_when(signal.SIGTERM, lambda: "step 7/80" in command.said) == CODES[signal.SIGTERM]
    assert steps_kept(out) >= 7
    assert f"stopped: asked to stop after step {steps_kept(out)}; step {steps_kept(out)} is kept in" in command.said
    assert f"going on after step {steps_kept(out)} of 80" in project.goes_on_to_the_same("pretrain", out).said
