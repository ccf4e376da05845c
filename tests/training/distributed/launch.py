"""Several processes of lingraft, started as a user starts them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")


def environment() -> dict[str, str]:
    """Ours, with one CPU thread a process."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(*program: str, processes: int = 2, options: tuple[str, ...] = ()) -> list[str]:
    """The command that runs a module on several processes."""
    return [*TORCHRUN, "--nproc-per-node", str(processes), *options, "-m", *program]


def lingraft(*arguments: str) -> list[str]:
    """The command of one process."""
    return [sys.executable, "-m", "lingraft", *arguments]


def finished(command: list[str], timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run to the end; one that hangs is killed with all that it has started, and fails the test."""
    with begun(command) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill_all(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def begun(command: list[str]) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it has started, whatever is left of them; workers have groups of their own."""
    for pid in family_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children_of(pid: int) -> list[int]:
    """Ids of the processes that a process has started, in any of its threads; none if it has ended."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, thread.read_text().split())
    return found


def family_of(pid: int) -> list[int]:
    """A process, its children, and theirs in turn."""
    return [pid, *(each for child in children_of(pid) for each in family_of(child))]
