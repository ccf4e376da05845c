"""A training stage on several processes of this machine: whoever calls it gets one artifact, one curve and one error.

`LINGRAFT_PROCESSES` says how many; the command line (`lingraft --processes 2 ...`) and pipelines set it. What calls a
stage stays one process, so tracking, pipelines and records need not know. `torchrun` itself is for several machines.
"""

import functools
import inspect
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, get_type_hints

from pydantic import TypeAdapter

from lingraft import errors, ranks
from lingraft.artifact import Artifact, read_manifest
from lingraft.errors import LingraftError, RecipeError, TrainingError
from lingraft.files import write_json
from lingraft.plan import Progress
from lingraft.stopping import EXIT_CODES, Interruption, heeded, restored

CALL_FILE, NEWS_FILE = "call.json", "news.jsonl"
_LOOK_EVERY_S = 0.2
_CHECKPOINT_S = 25

Given = ParamSpec("Given")


def spread(stage: Callable[Given, Artifact]) -> Callable[Given, Artifact]:
    """Let a stage, which must take `watch` and `out`, run on as many processes as are wanted.

    Raises:
        RecipeError: LINGRAFT_PROCESSES is not a number of processes.
        TrainingError: a process was lost. The checkpoints stay.
        Interruption: this process was asked to stop, and so were those that it had started.
    """

    @functools.wraps(stage)
    def on_all(*args: Given.args, **kwargs: Given.kwargs) -> Artifact:
        processes = _wanted()
        if processes == 1 or ranks.count() > 1:
            return stage(*args, **kwargs)
        given = inspect.signature(stage).bind(*args, **kwargs).arguments
        watch = given.pop("watch")
        with tempfile.TemporaryDirectory(prefix="lingraft-") as folder:
            hints = get_type_hints(stage)
            arguments = {name: TypeAdapter(hints[name]).dump_python(given[name], mode="json") for name in given}
            call = {"module": stage.__module__, "stage": stage.__name__, "arguments": arguments}
            write_json(Path(folder) / CALL_FILE, call)
            _run(processes, Path(folder), watch)
        return Artifact.load(given["out"], read_manifest(given["out"]).kind)

    return on_all


def _wanted() -> int:
    given = os.environ.get(ranks.WANTED, "1")
    if not (given.isdecimal() and int(given)):
        raise RecipeError(f"{ranks.WANTED} is {given!r}. Set it to a number of processes, from 1, or not at all.")
    return int(given)


def _run(processes: int, folder: Path, watch: Callable[[Progress], None]) -> None:
    """Start the processes, and pass on what the leader tells, until all have ended."""
    ended = threading.Event()
    (folder / NEWS_FILE).touch()
    with ThreadPoolExecutor(1, thread_name_prefix="news") as reader:
        try:  # from here on, or the reader would be waited for that nobody has told of the end
            news = reader.submit(_read, folder / NEWS_FILE, watch, ended)
            lost = _launch(processes, folder)
        finally:
            ended.set()
        error = news.result()
    if error or lost:
        raise error or TrainingError(lost)


def _launch(processes: int, folder: Path) -> str:
    """Run them as `torchrun` does; returns what is to be said of a process that was lost, nothing if all went well."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs")),
        signals_to_handle=",".join(number.name for number in heeded()),
        shutdown_timeout=_CHECKPOINT_S,
    )
    try:
        with restored():
            elastic_launch(config, sys.executable)("-m", "lingraft.member", str(folder))
    except SignalException as stopped:
        raise _stopped(stopped.sigval) from stopped
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        asked = {code: number for number, code in EXIT_CODES.items()}
        if failure.exitcode in asked:
            raise _stopped(asked[failure.exitcode]) from failed
        return (
            f"process {rank} of {processes} ended with exit code {failure.exitcode}, and so the others were ended. "
            "Run the same again: training goes on from its last checkpoint."
        )
    return ""


def _stopped(signal_number: int) -> Interruption:
    message = "asked to stop, and so were all processes of the training. Run the same again to go on."
    return Interruption(signal_number, message)


def _read(path: Path, watch: Callable[[Progress], None], ended: threading.Event) -> LingraftError | None:
    """Pass the leader's points on; returns the first error, if there was one."""
    error = None
    with path.open(encoding="utf-8") as lines:
        while True:
            last = ended.is_set()
            for line in iter(functools.partial(_whole_line, lines), ""):
                news = json.loads(line)
                if "point" in news:
                    watch(Progress(*news["point"]))
                else:
                    error = error or _error(news)
            if last:
                return error
            time.sleep(_LOOK_EVERY_S)


def _whole_line(lines: Any) -> str:
    """The next line, nothing while it is still being written."""
    place = lines.tell()
    line: str = lines.readline()
    if line.endswith("\n"):
        return line
    lines.seek(place)
    return ""


def _error(news: Mapping[str, str]) -> LingraftError:
    kind: type[LingraftError] = getattr(errors, news["error"])
    return kind.__new__(kind, news["message"])  # some make their message from other arguments
