"""Processes of a local run's steps, each a fork of one process that has the imports already.

A step of a small project computes for a second or less. Starting Python with KFP, PyTorch and MLflow takes several
seconds.
"""

import atexit
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

from lingraft.artifacts.manifest import read_manifest
from lingraft.errors import ArtifactError, LingraftError
from lingraft.signals import EXIT_CODES

_EXECUTOR = "kfp.dsl.executor_main"
IMPORTS = (
    _EXECUTOR,
    "torch",
    "torch._dynamo",  # which optimizers import
    "lingraft.steps.runner",
    *(f"lingraft.stages.{module}" for module in ("pretrain", "build_mini", "finetune", "adapt", "evaluate")),
    *(f"lingraft.{module}" for module in ("search", "data.text", "data.tokenizer.tokenizer")),
    # MLflow imports its stores, and SQLAlchemy and alembic with them, when a step first asks for a run.
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_store",
)
"""Modules that the forked process imports. Threads of Python and CUDA do not survive a fork, and none of these modules
starts any on import. OpenBLAS and jemalloc start their threads anew."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(IMPORTS))
_POLLING = threading.Lock()
"""Lock around starts and joins. Both poll exit codes in multiprocessing, each of which can be read only once, and the
second thread would report the process as lost."""
_READY = b"\n"


class StepProcess:
    """The process of a step, in a session of its own, so that Ctrl-C reaches it only through us."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], threads: int | None = None) -> None:
        """Start a step as `kfp.local` would.

        Args:
            command: command of a shell, with the program that it would write to a file, and the executor's arguments.
            environment: environment variables of the step.
            threads: threads of PyTorch on CPU cores; its own choice if None.

        Raises:
            LingraftError: the command does more than run the program.
        """
        shell = command[:3]
        program = command[3]
        arguments = command[4:]
        if _EXECUTOR not in shell[2] or "pip install" in shell[2]:
            raise LingraftError(
                f"cannot run a step that is prepared by {shell[2]!r}: local runs take components without "
                "packages_to_install, in the environment that they are started in."
            )
        self._command = command
        told = json.loads(arguments[arguments.index("--executor_input") + 1])
        self._given = told["inputs"]
        self._outputs = told["outputs"].get("artifacts", {})
        start()
        self._output, theirs = _CONTEXT.Pipe(duplex=False)
        given = program, [*arguments], dict(environment), theirs, threads
        self._process = _CONTEXT.Process(target=_run, args=given)
        with _POLLING:
            # A step needs nothing of the main module, which multiprocessing would import once more, and so run a
            # script that does not ask for its __name__.
            main = sys.modules["__main__"]
            sys.modules["__main__"] = types.ModuleType("__main__")
            try:
                self._process.start()
            finally:
                sys.modules["__main__"] = main
        theirs.close()
        # Wait until the step leads its own process group: an earlier signal to that group would be lost.
        os.read(self._output.fileno(), len(_READY))

    @property
    def name(self) -> str:
        """Name of its component, as KFP shows it."""
        return name_of(self._command)

    @property
    def title(self) -> str:
        """Name with the inputs that distinguish it from other steps of that name."""
        return title_of(self.name, self._given)

    @property
    def pid(self) -> int:
        """Id of its process, and of its process group."""
        assert self._process.pid is not None
        return self._process.pid

    def output(self, name: str) -> Path | None:
        """Return the path of one of its output artifacts; None if it has none of that name."""
        found = self._outputs.get(name)
        return Path(found["artifacts"][0]["uri"]) if found else None

    def remove_empty_outputs(self) -> None:
        """Remove empty folders among its outputs: on a cluster, the object store between steps keeps none."""
        for folder in filter(None, map(self.output, self._outputs)):
            with contextlib.suppress(OSError):  # it is a file, holds something, or was not written
                folder.rmdir()

    def lines(self) -> Iterator[str]:
        """Yield the output lines of the step and its child processes, until the last of them has ended."""
        with self._output, open(self._output.fileno(), encoding="utf-8", errors="replace", closefd=False) as stream:
            yield from stream

    def wait(self) -> int:
        """Wait for its end, and return the exit code, negative for a signal."""
        connection.wait([self._process.sentinel])
        with _POLLING:
            self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


def _run(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: connection.Connection,
    threads: int | None = None,
) -> None:
    """Run the program in the new process as the shell would."""
    os.setsid()
    for number in EXIT_CODES:
        # Discard signals so far: they went to the terminal's whole group, and the local run passes them on.
        handler = signal.signal(number, signal.SIG_IGN)
        signal.signal(number, handler)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), stream.fileno())
    # After this line a signal may end us in a traceback, which belongs in the output.
    os.write(output.fileno(), _READY)
    output.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_CODES)
    os.environ.clear()
    os.environ.update(environment, _KFP_RUNTIME="true")
    # The forked process has imported them; the main process, which imports this module first, need not wait for them.
    import torch
    from kfp.dsl import executor_main

    if threads:
        torch.set_num_threads(threads)
    logging.getLogger().handlers.clear()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ephemeral_component.py"
        file.write_text(program, encoding="utf-8")
        sys.argv = [_EXECUTOR, "--component_module_path", str(file), *arguments]
        try:
            executor_main.executor_main()
        finally:
            atexit._run_exitfuncs()  # multiprocessing ends its processes without them


def start() -> None:
    """Start the process to fork from unless it runs, with stop signals blocked, so that they do not end it.

    It imports for seconds. Started early, it does so while this process imports what it needs itself.
    """
    resource_tracker.ensure_running()  # or the other would start it, which unblocks signals (CPython 3.11 and 3.12)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def name_of(command: Sequence[str]) -> str:
    """Return the name of the component that a step's command runs, as KFP shows it."""
    return command[command.index("--function_to_execute") + 1].replace("_", "-")


def title_of(name: str, inputs: Mapping[str, Any]) -> str:
    """Return the name of a step with its language, task, seed or depth.

    Args:
        name: name of the step's component.
        inputs: parameters and artifacts, as KFP passes them to its executor.
    """
    values = inputs.get("parameterValues", {})
    found = [str(values[each]) for each in ("language", "job", "task") if each in values]
    depth = [f"depth {values['depth']:g}"] if "depth" in values else []
    return " ".join([name, *(found or _language_of(inputs)), *depth])


def _language_of(inputs: Mapping[str, Any]) -> list[str]:
    """Return the language of a step's blocks or text; empty if it has neither, or they failed."""
    for each in ("blocks", "text"):
        for artifact in inputs.get("artifacts", {}).get(each, {}).get("artifacts", ()):
            with contextlib.suppress(ArtifactError):
                language = read_manifest(Path(artifact["uri"])).language
                return [language] if language else []
    return []
