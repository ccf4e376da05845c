"""Trainings that end by themselves, in processes of their own: losses that are not finite, and a budget of FLOPs."""

import re
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.interrupted.project import (
    Project,
    checkpoints,
    facts,
    history,
    recipe,
    require_same,
    steps_kept,
    training,
)

pytestmark = pytest.mark.integration
_WILD = 1e30
"""Learning rate with which weights are beyond float32 after a few steps."""


@pytest.mark.parametrize("stage", ["adapt", "finetune"])
def test_a_training_that_runs_away_ends_in_an_error_with_step_rate_and_batch(
    project: Project, tmp_path: Path, stage: str
) -> None:
    out = tmp_path / "out"
    wild = recipe(tmp_path, rate=_WILD, mini_rate=_WILD, task_rate=_WILD, skipped_steps=2)
    command = project.start(stage, out, recipe=wild)
    assert command.ends() == 1, command.said
    found = re.search(r"step (\d+)", command.said)
    assert found, command.said
    assert re.search(r"learning rate \S*e\+", command.said), command.said
    assert "Traceback" not in command.said
    assert [*training(out).glob("not-finite-step-*")], sorted(training(out).iterdir())
    assert not out.exists()
    for place in checkpoints(out):
        for file in place.glob("*.safetensors"):
            tensors = load_file(file)
            tensors.pop("losses", None)  # those that were left out are among them
            assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_budget_of_flops_holds_over_kills(project: Project, tmp_path: Path) -> None:
    [*_, last] = history(project.whole("pretrain"))
    settings = recipe(tmp_path, flop_budget=last["flops"] / 2)
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert project.start("pretrain", whole, recipe=settings).ends() == 0
    assert facts(whole)["cost"]["steps"] == 40
    assert facts(whole)["cost"]["flops"] == pytest.approx(last["flops"] / 2)
    command = project.start("pretrain", out, recipe=settings)
    assert command.signalled_when(signal.SIGKILL, lambda: steps_kept(out) >= 10) == -signal.SIGKILL
    assert project.start("pretrain", out, recipe=settings).ends() == 0
    require_same("pretrain", out, whole)
