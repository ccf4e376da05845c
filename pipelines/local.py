"""Pipelines on this machine: `kfp.local` with one process for each step, and readable output."""

import builtins
import contextlib
import io
import logging
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from kfp import local
from kfp.dsl import base_component
from kfp.local import subprocess_task_handler

from lingraft.artifacts import cache
from lingraft.artifacts.addresses import sqlite_address
from lingraft.artifacts.failures import OUTCOME_PREFIX
from lingraft.artifacts.files import make_folder, write_text
from lingraft.artifacts.manifest import MANIFEST
from lingraft.config.search import SEARCH_STORAGE
from lingraft.console import RunningStep, TotalProgress
from lingraft.errors import LingraftError
from lingraft.ranks import available_cores
from lingraft.signals import EXIT_CODES, Interruption, signal_handler
from lingraft.tracking import environment
from pipelines.forkserver import StepProcess, name_of
from pipelines.plan import planned_steps

_ERROR = re.compile(r"^\s*lingraft(\.\w+)+Error: ")
_EXCEPTION = re.compile(r"^\s*(\w+\.)*\w+(Error|Exception|Expired): ")
"""The last line of a traceback."""
_STOPPED = re.compile(r"^\s*(stopped|lingraft\.signals\.Interruption): ")
"""The last line of a step's process that was asked to stop."""
_PROGRESS = re.compile(r"^\s*.*: (step \d+/\d+, loss |(batch|document|part|question) \d+)")
_NUMBER_FORMAT = re.compile(r"^\s*precision (fp32|bf16)\b")
_OUTCOME = re.compile(rf"^\s*{OUTCOME_PREFIX}")
_TRAINING = re.compile(r": step \d+/\d+, .*, (\d+) s left$")
_REUSED = re.compile(r": made before from the same, taken from (.+)$")
MARK = ".lingraft"
"""File in a folder of results that we made, by which `make clean` knows it."""
_CLOSING = "close_run"
"""Function of the exit handler's step, which ends the tracking run."""
_REPORT = "report"
"""Output of the steps that write reports. Pipelines have no outputs: none may come from within an exit handler."""
_COLOUR = re.compile(r"\x1b\[\d+m")
_LOST_TERMINAL = signal.SIGHUP, signal.SIGQUIT
_OPENMP_THREADS = "OMP_NUM_THREADS"
_ATTEMPTS = 3
"""Attempts at a step whose process is killed: as many as Kubeflow's own default."""
_KILLED = "is there enough memory? Run the same again to go on."
_PATIENCE_S = 30
"""Seconds that a step has for its checkpoint when it is asked to stop; then it is killed."""


class PipelineFailedError(LingraftError):
    """A step of a local run failed; the message is the step's own."""


class _Screen(io.TextIOBase):
    """Writes everything to the log, and outcomes of languages to the screen; remembers errors."""

    def __init__(self, log: io.TextIOBase, screen: Any) -> None:
        self.log = log
        self.screen = screen
        self.error: str | None = None
        self.exception: str | None = None
        """The last one of any other class, for steps that fail without an error of ours."""
        self.stopped: str | None = None
        """Last line of the first step that stopped."""
        self.rest = ""

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + _COLOUR.sub("", text)).split("\n")
        for line in lines:
            self.log.write(f"{line}\n")
            if _ERROR.match(line):
                self.error = _ERROR.sub("", line)
            elif _EXCEPTION.match(line):
                self.exception = line.strip()
            elif _STOPPED.match(line):
                self.stopped = self.stopped or _STOPPED.sub("", line)
            elif _OUTCOME.match(line):
                self.show(line.strip())
        return len(text)

    def flush(self) -> None:
        self.log.flush()

    def show(self, line: str) -> None:
        """Write a line to the screen alone."""
        self.screen.write(f"{line}\n")  # in one call, since parallel steps write from threads
        self.screen.flush()


class _RunningSteps:
    """The running processes of steps, to which signals are passed on."""

    def __init__(self, screen: _Screen, progress: TotalProgress) -> None:
        self.signal_number = 0
        self.report: Path | None = None
        """Folder of the report that a step has written."""
        self._screen = screen
        self._progress = progress
        self._running: set[int] = set()
        self._unsignalled: set[int] = set()
        self._number_formats: set[str] = set()
        """Number formats that the screen has shown."""

    def run(self, full_command: Sequence[str], env_vars: object = None) -> int:
        """Run a step to its end, as `kfp.local` would, and a killed one again, as Argo does a lost pod.

        After a stop signal only the exit handler's step starts. Variables that a step has on the cluster, such as
        folders on its claim, are ignored here.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            code = self._attempt(full_command)
            if code != -signal.SIGKILL or self.signal_number:
                break
            again = f"attempt {attempt + 1} of {_ATTEMPTS}" if attempt < _ATTEMPTS else _KILLED
            print(f"the process of step {name_of(full_command)!r} was killed: {again}")
        return code

    def _attempt(self, full_command: Sequence[str]) -> int:
        stoppable = _CLOSING not in full_command
        if self.signal_number and stoppable:
            return EXIT_CODES[signal.Signals(self.signal_number)]
        try:
            step = StepProcess(full_command, os.environ, self._threads(name_of(full_command)))
        except LingraftError as error:  # within a loop, KFP would swallow it
            print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
            return 1
        self._running.add(step.pid)
        if stoppable:
            self._unsignalled.add(step.pid)
        if self.signal_number:  # while it was started
            self._signal_once(step.pid)
        counted = self._progress.start(step.name, step.title)
        reused = earlier = False
        self._screen.show(f"[{self._progress.elapsed_s:5.0f} s] {counted.headline}")
        try:
            for line in step.lines():
                print(line, end="")
                self._show_progress(counted, line.strip())
                if found := _REUSED.search(line):
                    reused, earlier = True, self._is_of_earlier_run(Path(found[1]))
            print()
            self.report = step.output(_REPORT) or self.report
            code = step.wait()
            step.remove_empty_outputs()
            return code
        finally:
            self._progress.end(counted, reused, earlier)
            self._running.discard(step.pid)
            self._unsignalled.discard(step.pid)

    def _threads(self, name: str) -> int | None:
        """Return a step's share of the cores where several run at once: OpenMP's threads would wait for each other."""
        at_once = self._progress.at_once(name)
        if at_once == 1 or _OPENMP_THREADS in os.environ:
            return None
        return max(1, available_cores() // at_once)

    def _is_of_earlier_run(self, result: Path) -> bool:
        """Return whether a shared result was complete before this run began; other steps of the run may share it."""
        completed_s = max((manifest.stat().st_mtime for manifest in result.rglob(MANIFEST)), default=0.0)
        return completed_s < time.time() - self._progress.elapsed_s

    def _show_progress(self, counted: RunningStep, line: str) -> None:
        left, is_progress = "", bool(_PROGRESS.match(line))
        if found := _TRAINING.search(line):
            left = self._progress.train(counted, float(found[1]))
        elif is_progress:
            left = self._progress.left()
        is_news = False
        if found := _NUMBER_FORMAT.match(line):
            is_news = found[1] not in self._number_formats  # each process prints it once
            self._number_formats.add(found[1])
        if is_news or is_progress:
            self._screen.show(f"          {line}{f'; all steps: {left}' if left else ''}")

    def stop(self, signal_number: int, _: FrameType | None) -> None:
        """Handle a signal: pass it on, and set the alarm that kills steps which do not end."""
        if self.signal_number:
            return
        self.signal_number = signal_number
        signal.alarm(_PATIENCE_S)
        for group in [*self._unsignalled]:
            self._signal_once(group)

    def kill(self, *_: object) -> None:
        """Handle the alarm: kill all steps."""
        self._send_all(signal.SIGKILL)

    def hang_up(self, signal_number: int, _: FrameType | None) -> None:
        """Handle the loss of the terminal, which ends this process and its steps."""
        self._send_all(signal_number)
        signal.signal(signal_number, signal.SIG_DFL)
        signal.raise_signal(signal_number)

    def _signal_once(self, group: int) -> None:
        """Pass the signal on to a process group, once."""
        with contextlib.suppress(KeyError, ProcessLookupError):
            self._unsignalled.remove(group)
            os.killpg(group, self.signal_number)

    def _send_all(self, signal_number: int) -> None:
        for group in [*self._running]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal_number)


def set_up(out: Path) -> None:
    """Put the stores of runs, searches and results under `out`, unless the environment names others.

    A pipeline that is run again continues with the results that `lingraft.artifacts.cache` finds there.

    Raises:
        ArtifactError: `out` cannot be written.
    """
    stores = {environment.TRACKING: environment.LOCAL_STORE, SEARCH_STORAGE: "optuna.db"}
    addresses = {name: sqlite_address(out.resolve() / file) for name, file in stores.items()}
    is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    make_folder(out)
    if is_new:  # never into a folder that holds something of others
        write_text(out / MARK, "Results of lingraft. `make clean` removes a folder only where it finds this file.\n")
    for name, address in addresses.items():
        os.environ.setdefault(name, address)
    environment.set_up()
    os.environ.setdefault(cache.RESULTS_VARIABLE, str(out.resolve() / "results"))


def run(
    pipeline: base_component.BaseComponent, out: Path, progress: TotalProgress | None = None, **arguments: Any
) -> Path | None:
    """Run a pipeline on this machine, and return the folder of the report that it wrote; None if it writes none.

    Args:
        pipeline: pipeline from `pipelines.build`, or loaded from compiled YAML.
        out: folder for artifacts, tracking store and log; tracking goes to `MLFLOW_TRACKING_URI` if that is set.
        progress: progress over the steps of several pipelines; if None, over those of this one.
        arguments: parameters of the pipeline.

    Raises:
        PipelineFailedError: a step failed; the message has the step's error and the path of the log.
        ArtifactError: `out` cannot be written.
        Interruption: this process was asked to stop, and so were the running steps.
    """
    set_up(out)
    out = out.resolve()
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(out / "runs"), raise_on_error=True)
    progress = progress or TotalProgress(planned_steps(pipeline, arguments))
    with _screen_and_log(out / f"{pipeline.name}.log") as screen, _stoppable(_RunningSteps(screen, progress)) as steps:
        try:
            pipeline(**arguments)
        except RuntimeError as error:
            if steps.signal_number:
                raise _interruption(steps, screen) from error
            reason = screen.error or " ".join(filter(None, [_COLOUR.sub("", str(error)), screen.exception]))
            raise PipelineFailedError(f"{reason}\nThe whole log: {out / f'{pipeline.name}.log'}") from error
    if steps.signal_number:
        raise _interruption(steps, screen)
    return steps.report


def _interruption(steps: _RunningSteps, screen: _Screen) -> Interruption:
    return Interruption(steps.signal_number, screen.stopped or "asked to stop. Run the same again to go on.")


@contextlib.contextmanager
def _stoppable(steps: _RunningSteps) -> Iterator[_RunningSteps]:
    """Have `kfp.local` start steps that stop when we are asked to; it would leave them running, and wait."""
    kfps = subprocess_task_handler.run_local_subprocess
    with (
        signal_handler(steps.hang_up, _LOST_TERMINAL),
        signal_handler(steps.kill, [signal.SIGALRM]),
        signal_handler(steps.stop),
    ):
        subprocess_task_handler.run_local_subprocess = steps.run
        try:
            yield steps
        finally:
            subprocess_task_handler.run_local_subprocess = kfps
            if steps.signal_number:
                signal.alarm(0)


@contextlib.contextmanager
def _screen_and_log(log: Path) -> Iterator[_Screen]:
    with log.open("a", buffering=1, encoding="utf-8") as stream:
        screen = _Screen(stream, sys.stdout)
        with _restored_output(), contextlib.redirect_stdout(screen), warnings.catch_warnings():
            # kfp.local warns of every cluster setting and of our image at every step; neither matters here.
            warnings.filterwarnings("ignore", module=r"kfp\.local\.")
            yield screen


@contextlib.contextmanager
def _restored_output() -> Iterator[None]:
    """Restore `print` and the root logger after a run.

    While a step runs, `kfp.local` indents `print` and redirects the logger to our screen. Parallel steps may restore
    each other's versions.
    """
    plain_print = builtins.print
    root = logging.getLogger()
    handlers = [*root.handlers]
    level = root.level
    try:
        yield
    finally:
        builtins.print = plain_print
        root.handlers[:] = handlers
        root.setLevel(level)
