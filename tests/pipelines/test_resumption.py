"""A pipeline on this machine that is killed in the middle and run again: it goes on and arrives where it would have."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from tests.distributed.launch import ROOT, children_of
from tests.pipelines.finished import tiny
from tests.tracking_stores import quiet
from tests.workshop import changed

pytestmark = [quiet, pytest.mark.integration]
_RUN = """
import sys
from pathlib import Path
from lingraft.config import Recipe
from pipelines import build, local
local.run(build.source_pipeline(Recipe.parse(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
"""
_PATIENCE_S = 180


class Pipeline:
    """The source pipeline of a recipe, as a process of its own."""

    def __init__(self, recipe: Recipe, out: Path) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = out.parent / f"{out.name}.json"
        file.write_text(recipe.to_json(), encoding="utf-8")
        unset = {"MLFLOW_TRACKING_URI", "LINGRAFT_RESULTS", "LINGRAFT_SEARCH_STORAGE"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._out = out
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(file), str(out)], env=environment, stdout=subprocess.DEVNULL
        )

    def kill_after_a_checkpoint(self) -> None:
        """Kill it with all that it has started, as a machine goes that loses its power."""
        until = time.monotonic() + _PATIENCE_S
        while len([*self._out.glob("results/primary-*/result.training/step-*")]) < 2:
            assert self._process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        for process in self._all(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def ends_well(self) -> Artifact:
        """Wait for the end; returns the primary."""
        assert self._process.wait(_PATIENCE_S) == 0
        (made,) = self._out.glob("results/primary-*/result")
        return Artifact.load(made, Kind.PRIMARY)

    def _all(self, process: int) -> list[int]:
        return [process, *(each for child in children_of(process) for each in self._all(child))]


def test_a_pipeline_that_is_killed_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, tasks=(), search=None, threads=1)
    recipe = changed(recipe, "pretraining", steps=600, keep_every_s=0.1, log_every_steps=50)
    Pipeline(recipe, tmp_path / "killed").kill_after_a_checkpoint()
    again = Pipeline(recipe, tmp_path / "killed").ends_well()
    log = next((tmp_path / "killed").glob("*source.log")).read_text(encoding="utf-8")
    assert "going on after step " in log
    assert (
        log.count("made before from the same") >= 2
    )  # tokenizer and blocks; text is read to know whether it is the same
    whole = Pipeline(recipe, tmp_path / "whole").ends_well()
    assert again.fingerprint == whole.fingerprint
    tensors = [file.relative_to(whole.folder) for file in whole.folder.rglob("*.safetensors")]
    assert tensors
    assert all((again.folder / file).read_bytes() == (whole.folder / file).read_bytes() for file in tensors)
