"""The same pipelines on this machine: `kfp.local` with one process a step, shown in lines that a person reads."""

import contextlib
import io
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kfp import local
from kfp.dsl import base_component

from lingraft.errors import LingraftError
from lingraft.files import make_folder

_STARTED = re.compile(r"Executing task .*?'([\w-]+)'")
_ERROR = re.compile(r"^\s*lingraft(\.\w+)+Error: ")
_PROGRESS = re.compile(r"^\s*(precision (fp32|bf16)\b|.*: (step \d+/\d+, loss |(batch|document) \d+))")
_COLOUR = re.compile(r"\x1b\[\d+m")


class PipelineFailedError(LingraftError):
    """A step of a local run failed; the message is the step's own."""


class _Screen(io.TextIOBase):
    """Everything goes to the log; the screen gets what step runs, its progress, and errors."""

    def __init__(self, log: io.TextIOBase, screen: Any) -> None:
        self.log, self.screen, self.started = log, screen, time.monotonic()
        self.error: str | None = None
        self.rest = ""

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + _COLOUR.sub("", text)).split("\n")
        for line in lines:
            self.log.write(f"{line}\n")
            if found := _STARTED.search(line):
                self._show(f"[{time.monotonic() - self.started:5.0f} s] {found[1]}")
            elif _PROGRESS.match(line):
                self._show(f"          {line.strip()}")
            elif _ERROR.match(line):
                self.error = _ERROR.sub("", line)
        return len(text)

    def flush(self) -> None:
        self.log.flush()

    def _show(self, line: str) -> None:
        print(line, file=self.screen, flush=True)


def set_up(out: Path) -> None:
    """Send tracking to a SQLite store under `out`, unless `MLFLOW_TRACKING_URI` says where.

    Raises:
        ArtifactError: `out` cannot be written.
    """
    make_folder(out)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{out.resolve() / 'mlflow.db'}")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")


def run(pipeline: base_component.BaseComponent, out: Path, **arguments: Any) -> dict[str, Any]:
    """Run a pipeline here, and return its outputs.

    Args:
        pipeline: from `pipelines.build`, or loaded from compiled YAML.
        out: folder for artifacts, tracking store and log; tracking goes to `MLFLOW_TRACKING_URI` if that is set.
        arguments: the pipeline's parameters.

    Raises:
        PipelineFailedError: a step failed; the message says what the step said and where the log is.
        ArtifactError: `out` cannot be written.
    """
    set_up(out)
    out = out.resolve()
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(out / "runs"), raise_on_error=True)
    with _screened(out / f"{pipeline.name}.log") as screen:
        try:
            outputs: dict[str, Any] = pipeline(**arguments).outputs
        except RuntimeError as error:
            reason = screen.error or _COLOUR.sub("", str(error))
            raise PipelineFailedError(f"{reason}\nThe whole log: {out / f'{pipeline.name}.log'}") from error
    return outputs


@contextlib.contextmanager
def _screened(log: Path) -> Iterator[_Screen]:
    with log.open("a", buffering=1, encoding="utf-8") as stream:
        screen = _Screen(stream, sys.stdout)
        with contextlib.redirect_stdout(screen), warnings.catch_warnings():
            # kfp.local warns of every cluster setting and of our image at every step; neither matters here.
            warnings.filterwarnings("ignore", module=r"kfp\.local\.")
            yield screen
