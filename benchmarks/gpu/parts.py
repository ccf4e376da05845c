"""Parts of the check: what is measured, each in a process of its own, with a record on disk as soon as it has ended.

A part that crashes, or takes longer than it may, leaves a record that says so, and is tried again by the next run.
"""

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pages import read_record, write_record

ENDED, STARTED, FAILED, NOT_STARTED = "ended", "started", "failed", "not started"
_LOG_CHARACTERS = 1500
_TO_STOP_S = 20.0
"""Seconds that a part has to write a checkpoint when its time is up."""
_LEAST_S = 5.0
"""Seconds below which no part is started."""
_MOST_OF_A_STAGE = 0.5
"""Share of a stage's time that one of several parts may take."""


class Given(NamedTuple):
    """Settings of a run."""

    out: Path
    tiny: bool = False
    """Whether all shapes are as small as a test wants them."""
    text: Path | None = None
    """Folder of prepared text, for the comparison."""
    ends_at: float = float("inf")
    """Time by the system's clock, in seconds, at which a part is to have ended."""

    def path(self, part: "Part", suffix: str = ".json") -> Path:
        """Return the path of a part's record, or of another file beside it."""
        return self.out / part.stage / f"{part.name}{suffix}"

    def record(self, stage: str, name: str) -> dict[str, Any]:
        """Return a record; empty if there is none, or if it is of another size."""
        path = self.out / stage / f"{name}.json"
        found: dict[str, Any] = read_record(path) if path.exists() else {}
        return found if found.get("tiny") == self.tiny else {}


class Part(NamedTuple):
    """A measurement."""

    stage: str
    name: str
    measure: Callable[["Given", Callable[[dict[str, Any]], None]], dict[str, Any]]
    """Returns what it found, as JSON values; what it has found so far it may keep by the function it is given."""


def measure(part: Part, given: Given) -> None:
    """Measure in this process."""
    from benchmarks.speed.machine import commit, described

    path, began = given.path(part), time.time()

    def keep(found: dict[str, Any], state: str = STARTED) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        about = {"machine": described(), "commit": commit(), "tiny": given.tiny, "date": today}
        about["seconds"] = time.time() - began
        write_record(path, {"state": state, "found": found} | about)

    keep(part.measure(given, keep), ENDED)


def run(parts: Sequence[Part], shares: Mapping[str, float], given: Given, minutes: float) -> None:
    """Run the parts that have not ended yet, within a time.

    Args:
        parts: parts in order, those of a stage together.
        shares: share of the time that each stage may take; what it leaves goes to the last one.
        given: settings of the run.
        minutes: time for all of them.
    """
    ends_at = time.time() + 60 * minutes
    for stage, share in shares.items():
        allowed_s = 60 * minutes * share
        stage_ends_at = min(ends_at, time.time() + allowed_s)
        own = [part for part in parts if part.stage == stage]
        for part in own:
            if given.record(part.stage, part.name).get("state") == ENDED:
                continue
            left_s = stage_ends_at - time.time()
            if len(own) > 1:
                left_s = min(left_s, _MOST_OF_A_STAGE * allowed_s)
            _run_part(part, given, left_s)


def _run_part(part: Part, given: Given, left_s: float) -> None:
    path, log = given.path(part), given.path(part, ".log")
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = given.record(part.stage, part.name)
    if left_s < _LEAST_S:
        if not earlier:
            write_record(path, {"state": NOT_STARTED, "tiny": given.tiny, "why": "no time was left"})
        return
    print(f"{part.stage}, {part.name}: at most {left_s:.0f} s", flush=True)
    began = time.time()
    with log.open("wb") as stream:
        why = _wait(_start(part, given, began + left_s, stream), left_s)
    found = given.record(part.stage, part.name)
    if found.get("state") != ENDED:
        told = log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
        ended = {"state": FAILED, "tiny": given.tiny, "why": why, "log": told, "seconds": time.time() - began}
        write_record(path, found | ended)
    print(f"  {why} after {time.time() - began:.0f} s", flush=True)


def _start(part: Part, given: Given, ends_at: float, log: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--out", str(given.out), "--part", part.stage, part.name]
    command += ["--ends-at", str(ends_at), *(["--tiny"] if given.tiny else [])]
    command += ["--text", str(given.text)] if given.text else []
    # cuBLAS asks for the first where training is to be deterministic, before CUDA starts.
    own = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | own, start_new_session=True)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a part, stop it and all that it has started when its time is up, and say how it ended."""
    try:
        try:
            code = process.wait(seconds)
            return "ended" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_TO_STOP_S)
            except subprocess.TimeoutExpired:
                return f"killed {_TO_STOP_S:.0f} s after its time was up"
            return f"stopped when its {seconds:.0f} s were up"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
