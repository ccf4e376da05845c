"""A step as a child process, which survives in what it has kept when it is killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from lingraft.files import write_text
from lingraft.launch.calls import Answer, Call, Ended, out_of_memory
from lingraft.launch.step import LAUNCHER
from lingraft.stopping import EXIT_CODES, Interruption, handled

_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
_STOPS = {code: number for number, code in EXIT_CODES.items()}


def attempt(call: Call) -> Ended:
    """Do a step in a process of its own, which writes to our output.

    Raises:
        Interruption: we were asked to stop, and so was the step.
    """
    with tempfile.TemporaryDirectory() as folder:
        call_file, answer_file = Path(folder) / "call.json", Path(folder) / "answer.json"
        write_text(call_file, call.model_dump_json())
        killed_before = _killed_for_memory()
        code = _run([sys.executable, "-m", "lingraft.launch.step", str(call_file), str(answer_file)])
        if answer_file.exists():
            return Ended(Answer.model_validate_json(answer_file.read_bytes()))
    if code in _STOPS:
        raise Interruption(_STOPS[code], f"step {call.step!r} was asked to stop. Run the same again to go on.")
    if code == -signal.SIGKILL and _killed_for_memory() > killed_before:
        return out_of_memory(f"step {call.step!r}", "the memory of its container")
    if code == -signal.SIGKILL:
        return Ended(vanished=f"the process of step {call.step!r} was killed")
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return Ended(failed=f"the process of step {call.step!r} ended {how}, and its log says why")


def _run(command: list[str]) -> int:
    """Run to the end; who is asked to stop passes that on, and waits. A group of its own is not asked twice.

    Returns:
        The exit code; of a step that was stopped before it could heed what was passed on, that of one that has.
    """
    started: list[subprocess.Popen[bytes]] = []
    coming: list[int] = []
    passed_on: set[int] = set()

    def pass_on() -> None:
        while started and coming:
            passed_on.add(number := coming.pop())
            started[0].send_signal(number)

    def ask(number: int, _: FrameType | None) -> None:
        coming.append(number)
        pass_on()

    environment = os.environ | {LAUNCHER: str(os.getpid())}
    # Handled from before the process is there: what comes while it starts waits until it can be passed on.
    with handled(ask), subprocess.Popen(command, process_group=0, env=environment) as process:
        started.append(process)
        pass_on()
        code = process.wait()
    return EXIT_CODES[signal.Signals(-code)] if -code in passed_on else code


def _killed_for_memory() -> int:
    """How often the kernel has killed a process of our container for its memory; 0 where it does not count that."""
    try:
        events = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
    except OSError:
        return 0
    return int(events.get("oom_kill", 0))
