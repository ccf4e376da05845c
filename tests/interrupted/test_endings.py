"""Trainings that end by themselves, in processes of their own: losses that are not finite, and a budget of FLOPs."""

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.interrupted.project import (
    Project,
    checkpoints,
    recipe,
)

pytestmark = pytest.mark.integration
_WILD = 1e30
"""Learning rate with which weights are beyond float32 after a few steps."""


@pytest.mark.parametrize("stage", ["adapt", "finetune"])
def test_a_training_that_runs_away_ends_in_an_error_with_step_rate_and_batch(
    project: Project, tmp_path: Path, stage: str
) -> None:
    out = tmp_path / "out"
    wild = recipe(tmp_path, rate=_WILD, mini_rate=_WILD, task_rate=_WILD)
    command = project.start(stage, out, recipe=wild)
    assert command.ends() == 1, command.said
    found = re.search(r"step (\d+)", command.said)
    assert found, command.said
    assert re.search(r"learning rate \S*e\+", command.said), command.said
    assert "Traceback" not in command.said
    assert not out.exists()
    for place in checkpoints(out):
        for file in place.glob("*.safetensors"):
            tensors = load_file(file)
            tensors.pop("losses", None)  # those that were left out are among them
            assert all(tensor.isfinite().all() for tensor in tensors.values())
