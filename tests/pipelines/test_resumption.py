"""A pipeline on this machine that is killed in the middle and run again: it goes on and arrives where it would have."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.stages import pretrain
from lingraft.training.schedule import ignore_metrics
from tests.pipelines.finished import tiny
from tests.tracking_stores import quiet
from tests.training.distributed.launch import ROOT, family_of
from tests.workshop import changed

pytestmark = [quiet, pytest.mark.integration]
RUN = """
import sys
from pathlib import Path
from lingraft.config.recipe import Recipe
from pipelines import build, local
local.run(build.source_pipeline(Recipe.parse(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
"""
PATIENCE_S = 900


def run(out: Path, killed_after_step: int | None = None) -> None:
    """Run the source pipeline to its end, or kill it with all that it has started, as a machine loses its power."""
    unset = {"MLFLOW_TRACKING_URI", "LINGRAFT_RESULTS", "LINGRAFT_SEARCH_STORAGE"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, str(out.with_suffix(".json")), str(out)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            if killed_after_step is None:
                assert process.wait(PATIENCE_S) == 0
            until = time.monotonic() + PATIENCE_S
            while killed_after_step is not None and last_step(out) < killed_after_step:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
        finally:
            for pid in family_of(process.pid) if process.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def last_step(out: Path) -> int:
    """The step of the last checkpoint."""
    places = out.glob("results/primary-*/result.training/step-*")
    return max((int(place.name.removeprefix("step-")) for place in places), default=0)


def test_a_pipeline_that_is_killed_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, tasks=(), search=None)
    recipe = changed(recipe, "pretraining", steps=150, keep_every_s=0.1, log_every_steps=25)
    out = tmp_path / "out"
    out.with_suffix(".json").write_text(recipe.to_json(), encoding="utf-8")
    run(out, killed_after_step=10)
    run(out)
    log = next(out.glob("*source.log")).read_text(encoding="utf-8")
    assert "going on after step " in log
    assert log.count("made before from the same") >= 2  # tokenizer and blocks; text is read to know whether it grew
    [blocks], [tokenizer], [again] = (
        [*out.glob(f"results/{kind}-*/result")] for kind in (Kind.BLOCKS, Kind.TOKENIZER, Kind.PRIMARY)
    )
    whole = pretrain.pretrain(recipe, blocks, tokenizer, tmp_path / "whole", ignore_metrics)
    assert Artifact.load(again, Kind.PRIMARY).fingerprint == whole.fingerprint
    weights = [file.relative_to(whole.folder) for file in whole.folder.rglob("*.safetensors")]
    assert weights
    assert all((again / name).read_bytes() == (whole.folder / name).read_bytes() for name in weights)
