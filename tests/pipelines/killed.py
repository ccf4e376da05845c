"""A pipeline on this machine as a process of its own, which a test kills in the middle and runs again."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from tests.training.distributed.launch import ROOT, family_of

_RUN = """
import sys
from pathlib import Path
from lingraft.config.recipe import Recipe
from pipelines import build, local
pipeline = getattr(build, f"{sys.argv[1]}_pipeline")
local.run(pipeline(Recipe.parse(Path(sys.argv[2]).read_text())), Path(sys.argv[3]))
"""
_PATIENCE_S = 900


class Pipeline:
    """One of `pipelines.build` with a recipe; what it makes of a kind is looked at in its shared results."""

    def __init__(self, name: str, kind: Kind, recipe: Recipe, out: Path) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = out.parent / f"{out.name}.json"
        file.write_text(recipe.to_json(), encoding="utf-8")
        unset = {"MLFLOW_TRACKING_URI", "LINGRAFT_RESULTS", "LINGRAFT_SEARCH_STORAGE"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._kind = kind
        self._out = out
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, name, str(file), str(out)], env=environment, stdout=subprocess.DEVNULL
        )

    def kill_after_step(self, step: int) -> int:
        """Kill it with all that it has started, as a machine goes that loses its power; returns the step it was at."""
        until = time.monotonic() + _PATIENCE_S
        while self._kept() < step:
            assert self._process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        self._kill()
        return self._kept()

    def ends_well(self) -> Artifact:
        """Wait for the end; returns what was made."""
        try:
            assert self._process.wait(_PATIENCE_S) == 0
        finally:
            if self._process.returncode is None:
                self._kill()
        found = (Artifact.load(folder, self._kind) for folder in self._out.glob(f"results/{self._kind}-*/result"))
        (made,) = (each for each in found if each.manifest.cost.steps)  # and not the embeddings that it started from
        return made

    def _kill(self) -> None:
        for process in family_of(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def _kept(self) -> int:
        """Step of the last checkpoint."""
        places = self._out.glob(f"results/{self._kind}-*/result.training/step-*")
        return max((int(place.name.removeprefix("step-")) for place in places), default=0)


def same_tensors(one: Artifact, other: Artifact) -> bool:
    """Whether all files of tensors are equal, bit for bit; there must be some."""
    names = {file.relative_to(other.folder) for file in other.folder.rglob("*.safetensors")}
    return bool(names) and all((one.folder / name).read_bytes() == (other.folder / name).read_bytes() for name in names)
