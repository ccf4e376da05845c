"""A source of data that does not answer while training is asked to stop."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.test_train_endings import PLAN, keeper_at, trained


@pytest.mark.parametrize(("stalls", "kept"), [(1, 0), (9, 8)])
def test_a_source_that_stalls_does_not_hold_up_who_is_asked_to_stop(tmp_path: Path, stalls: int, kept: int) -> None:
    """In a process of its own, whose end must not wait for the source either."""
    done = subprocess.run(
        [sys.executable, "-c", _STALLING, str(tmp_path), str(stalls)], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 75, done.stderr
    assert f"asked to stop after step {kept}; step {kept} is kept in" in done.stdout
    state = keeper_at(tmp_path, kept)
    assert torch.equal(trained(PLAN, state=state)[0], trained(PLAN)[0])


_STALLING = """
import os, signal, sys, threading
from contextlib import nullcontext
from pathlib import Path
from lingraft.stopping import Interruption
from lingraft.train import train
from tests.test_train_endings import PLAN, Model, keeper, stream

folder, stalls = Path(sys.argv[1]), int(sys.argv[2])

def stalling(step):
    if step == stalls:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Event().wait(600)
    return stream()(step)

model = Model()
try:
    list(train(model, [model.weight], stalling, PLAN, nullcontext, keeper=keeper(folder, 1000)))
except Interruption as stopped:
    print(stopped)
    sys.exit(stopped.exit_code)
"""
