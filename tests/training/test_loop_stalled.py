"""A source of data that does not answer while training is asked to stop."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch

from lingraft.signals import Interruption
from tests.fixtures.forked import start
from tests.plans import train
from tests.training.test_loop_endings import PLAN, Model, Numbers, checkpointer, keeper_at, stream, trained


def train_on_a_source_that_stalls(folder: Path, stalls: int) -> None:
    """Train until the source stalls at a step; a moment later this process is asked to stop."""

    def stalling(step: int) -> list[tuple[float, Numbers]]:
        if step == stalls:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
            threading.Event().wait(600)
        return stream()(step)

    model = Model()
    try:
        list(train(model, [model.weight], stalling, PLAN, checkpointer=checkpointer(folder, 1000)))
    except Interruption as stopped:
        print(stopped)
        sys.exit(stopped.exit_code)


@pytest.mark.parametrize(("stalls", "kept"), [(1, 0), (9, 8)])
def test_a_source_that_stalls_does_not_hold_up_who_is_asked_to_stop(tmp_path: Path, stalls: int, kept: int) -> None:
    """In a process of its own, whose end must not wait for the source either."""
    child = start(train_on_a_source_that_stalls, tmp_path / "state", stalls, log=tmp_path / "log")
    assert child.ends(50) == 75, child.said
    assert f"asked to stop after step {kept}; step {kept} is kept in" in child.said
    state = keeper_at(tmp_path / "state", kept)
    assert torch.equal(trained(PLAN, state=state)[0], trained(PLAN)[0])
