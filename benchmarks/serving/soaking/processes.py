"""The processes beside the server: MLflow, the one that follows the registry, and the load generator."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.addresses import sqlite_address
from lingraft.errors import ServingError
from lingraft.serving.client import free_ports, stop

_HOST = "127.0.0.1"
_READY_S, _STOP_S, _POLL_S = 300.0, 60.0, 0.1
_TAIL_CHARACTERS = 2000
_AS_DEPLOYED = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Settings of manifests/base; jobs would take seven processes."""


@contextlib.contextmanager
def started(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose words go to a file; it is ended at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
        try:
            yield process
        finally:
            stop(process, _STOP_S)


@contextlib.contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    """The address of an MLflow server with a database and artifacts of its own; `require_healthy` waits for it."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mlflow", "server", f"--host={_HOST}", f"--port={port}", "--workers=1"]
    command += [f"--backend-store-uri={sqlite_address(folder / 'mlflow.db')}", "--serve-artifacts"]
    command += [f"--artifacts-destination={folder / 'artifacts'}"]
    with started(command, folder / "mlflow.log", os.environ | _AS_DEPLOYED) as process:
        yield f"http://{_HOST}:{port}"
        require_running(process, folder / "mlflow.log")


def require_healthy(url: str) -> None:
    """Wait until MLflow answers.

    Raises:
        ServingError: it does not in time.
    """
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        time.sleep(_POLL_S)
    raise ServingError(f"MLflow at {url} has not answered within {_READY_S:g} s. Its log says why.")


@contextlib.contextmanager
def champion(model: str, published: Path, bundle: Path, log: Path) -> Iterator[None]:
    """`lingraft publish champion` on a registered bundle."""
    command = [sys.executable, "-m", "lingraft", "publish", "champion", model, f"--to={published}"]
    command += [f"--started={bundle}", "--endpoint=soak", "--every=1"]
    with started(command, log) as process:
        yield
        require_running(process, log)


def require_running(process: subprocess.Popen[bytes], log: Path) -> None:
    """Fail if a process that was to run on has ended.

    Raises:
        ServingError: the message has the end of its log.
    """
    if (status := process.poll()) is not None:
        said = log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
        raise ServingError(f"a process ended with status {status}. It last said in {log.name}:\n{said}")


class Load:
    """The load generator in its process; see `load`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    @classmethod
    @contextlib.contextmanager
    def started(cls, plan: Mapping[str, Any], folder: Path) -> "Iterator[Load]":
        """The generator, once it is ready; its plan, and what it says in trouble, lie in a folder."""
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.serving.soaking.load", str(folder / "plan.json")]
        pipe = subprocess.PIPE
        with (
            (folder / "load.log").open("w") as log,
            subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=log) as process,
        ):
            try:
                yield cls(process)
            finally:
                stop(process, _STOP_S)

    def order(self, do: str, **more: Any) -> dict[str, Any]:
        """Have something done; returns what the generator says of it.

        Raises:
            ServingError: it has ended.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise ServingError("the load generator has ended; load.log in the soak's folder says why.")
        said: dict[str, Any] = json.loads(line)
        return said
