"""Commands of `lingraft` in processes of their own, which are really killed.

A server that has imported everything is forked for each, so that none waits for PyTorch to be imported.
"""

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["lingraft.cli", "lingraft.stages", "lingraft.adaptation", "torch._dynamo"])
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2
PATIENCE_S = 120


@dataclass
class Limits:
    """What a command may not do."""

    file_bytes: int | None = None
    """Beyond which the kernel refuses to write a file: a full disk."""
    as_anybody: bool = False
    """Folders that are read-only are so for root, too."""


@dataclass
class Command:
    """One that has been started."""

    process: ForkServerProcess
    log: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.is_alive()

    @property
    def said(self) -> str:
        """What it has written to standard output and error so far."""
        return self.log.read_text(encoding="utf-8")

    def ends(self) -> int:
        """Wait until it ends; its exit code, negative for a signal."""
        self.process.join(PATIENCE_S)
        code = self.process.exitcode
        assert code is not None, f"still running after {PATIENCE_S} s: {self.said}"
        return code

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.process.pid is not None and self.runs:
            os.kill(self.process.pid, number)

    def killed_after(self, delay_s: float) -> int:
        """Kill it as a machine does that loses its power; its exit code."""
        time.sleep(delay_s)
        self.send(signal.SIGKILL)
        return self.ends()

    def signalled_when(self, number: int, time_has_come: Callable[[], bool]) -> int:
        """Send a signal as soon as something is so; its exit code."""
        while self.runs and not time_has_come():
            time.sleep(0.0005)
        self.send(number)
        return self.ends()


def start(arguments: list[str], log: Path, limits: Limits | None = None) -> Command:
    """Start `lingraft` with some arguments, and wait until it has begun; what it says goes to a file."""
    log.touch()
    begun, begins = _SERVER.Pipe(duplex=False)
    process = _SERVER.Process(target=_run, args=(begins, arguments, str(log), limits or Limits()))
    process.start()
    begins.close()
    begun.recv_bytes()
    begun.close()
    return Command(process, log)


def run(arguments: list[str], log: Path, limits: Limits | None = None) -> Command:
    """The same, and wait until it has ended well."""
    command = start(arguments, log, limits)
    assert command.ends() == 0, command.said
    return command


def _run(begins: Connection, arguments: list[str], log: str, limits: Limits) -> None:
    begins.send_bytes(b"begun")
    begins.close()
    with open(log, "ab", buffering=0) as stream:  # noqa: PTH123  the descriptor is what counts
        os.dup2(stream.fileno(), sys.stdout.fileno())
        os.dup2(stream.fileno(), sys.stderr.fileno())
    if limits.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, resource.RLIM_INFINITY))
    if limits.as_anybody:
        _lose_roots_rights()
    sys.argv = ["lingraft", *arguments]
    from lingraft.cli import main

    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # as the interpreter ends by itself, but not under multiprocessing


def _lose_roots_rights() -> None:
    """Be refused what the mode of a folder refuses: from the effective capabilities, those that override it are taken.

    Anybody but root has none of them.
    """

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    libc = ctypes.CDLL(None, use_errno=True)
    header, data = Header(0x20080522, 0), (Data * 2)()
    if libc.capget(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capget")
    keep = ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH)
    data[0].effective &= keep
    if libc.capset(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capset")
