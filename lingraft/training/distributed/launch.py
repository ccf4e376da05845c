"""A training stage on several processes: whoever calls it gets one artifact, one curve and one error.

`LINGRAFT_PROCESSES` says how many on this machine; the command line (`lingraft --processes 2 ...`) and pipelines set
it. What calls a stage stays one process, so tracking, pipelines and records need not know. Where several machines train
together, the stage is called on the first, and the others `join` it through a folder that all of them have.
"""

import contextlib
import functools
import inspect
import itertools
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, get_type_hints

from pydantic import TypeAdapter

from lingraft import errors, ranks
from lingraft.artifacts.artifact import Artifact, read_manifest
from lingraft.artifacts.files import write_json, write_text
from lingraft.console import say
from lingraft.errors import LingraftError, PeerLostError, RecipeError, TrainingError
from lingraft.signals import EXIT_CODES, Interruption, not_ignored, restore_signal_handlers
from lingraft.training.metrics import report_skipped_step
from lingraft.training.schedule import TrainingMetrics

CALL_FILE, EVENTS_FILE = "call.json", "news.jsonl"
_LOOK_EVERY_S = 0.2
_CHECKPOINT_S = 25
_ENDED = "ended"
"""File in the folder of several machines: there is nothing more to train."""
_LAST_WORDS_S = 60
_MEETING_S = 1800
"""For which machines wait for one another: nodes are ordered, and images are brought, at different speeds."""

Given = ParamSpec("Given")


def distributed(stage: Callable[Given, Artifact]) -> Callable[Given, Artifact]:
    """Let a stage, which must take `watch` and `out`, run on as many processes as are wanted.

    Raises:
        RecipeError: LINGRAFT_PROCESSES is not a number of processes.
        TrainingError: a process was lost. The checkpoints stay.
        PeerLostError: so was one of several machines that train together, or a process on it.
        Interruption: this process was asked to stop, and so were those that it had started.
    """

    @functools.wraps(stage)
    def on_all(*args: Given.args, **kwargs: Given.kwargs) -> Artifact:
        processes = _process_count()
        if processes * ranks.node_count() == 1 or ranks.world_size() > 1:
            return stage(*args, **kwargs)
        given = inspect.signature(stage).bind(*args, **kwargs).arguments
        watch = given.pop("watch")
        with _exchange_folder() as folder:
            hints = get_type_hints(stage)
            arguments = {name: TypeAdapter(hints[name]).dump_python(given[name], mode="json") for name in given}
            call = {"module": stage.__module__, "stage": stage.__name__, "arguments": arguments}
            (folder / EVENTS_FILE).touch()
            write_json(folder / CALL_FILE, call)
            _run(processes, folder, watch)
        return Artifact.load(given["out"], read_manifest(given["out"]).kind)

    return on_all


def join_training() -> int:
    """Take part in the trainings of the first machine, until it has ended; returns an exit code.

    Where a process is lost, the first machine says why, and is given time for it: Kubernetes ends all others when one
    has failed.

    Raises:
        Interruption: this machine was asked to stop.
    """
    shared = Path(os.environ[ranks.NODES_FOLDER_VARIABLE])
    for number in itertools.count():
        while not (shared / str(number) / CALL_FILE).exists():
            if (shared / _ENDED).exists():
                return 0
            time.sleep(_LOOK_EVERY_S)
        if lost := _launch(_process_count(), shared / str(number)):
            say(lost)
            return 0 if _has_ended(shared) else 1
    raise AssertionError("count() does not end")


def _has_ended(shared: Path) -> bool:
    """Whether the first machine ends soon; one that is lost, too, does not."""
    until = time.monotonic() + _LAST_WORDS_S
    while not (ended := (shared / _ENDED).exists()) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return ended


def end_training() -> None:
    """Tell the other machines that there is nothing more to train."""
    if ranks.node_count() > 1:
        write_text(Path(os.environ[ranks.NODES_FOLDER_VARIABLE]) / _ENDED, "")


@contextlib.contextmanager
def _exchange_folder() -> Iterator[Path]:
    """Where processes find what to do: for several machines the next folder of those that all of them have."""
    if ranks.node_count() == 1:
        with tempfile.TemporaryDirectory(prefix="lingraft-") as temporary:
            yield Path(temporary)
        return
    shared = Path(os.environ[ranks.NODES_FOLDER_VARIABLE])
    folder = shared / str(sum(each.is_dir() for each in shared.iterdir()) if shared.is_dir() else 0)
    folder.mkdir(parents=True)
    yield folder


def _process_count() -> int:
    given = os.environ.get(ranks.PROCESSES_VARIABLE, "1")
    if given == ranks.ALL_PROCESSES:
        import torch

        return max(1, torch.cuda.device_count())
    if not (given.isdecimal() and int(given)):
        raise RecipeError(
            f"{ranks.PROCESSES_VARIABLE} is {given!r}. Set it to a number of processes, from 1, to "
            f"{ranks.ALL_PROCESSES!r}, or not at all."
        )
    return int(given)


def _run(processes: int, folder: Path, watch: Callable[[TrainingMetrics], None]) -> None:
    """Start the processes, and pass on what the leader tells, until all have ended."""
    ended = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="news") as reader:
        try:  # from here on, or the reader would be waited for that nobody has told of the end
            news = reader.submit(_follow_events, folder / EVENTS_FILE, watch, ended)
            lost = _launch(processes, folder)
        finally:
            ended.set()
        error = news.result()
    if error or lost:
        raise error or (PeerLostError if ranks.node_count() > 1 else TrainingError)(lost)


def _launch(processes: int, folder: Path) -> str:
    """Run them as `torchrun` does; returns what is to be said of a process that was lost, nothing if all went well."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    nodes = ranks.node_count()
    alone: dict[str, Any] = {"rdzv_backend": "c10d", "run_id": uuid.uuid4().hex, "local_addr": "localhost"}
    place = {"rank": ranks.node_rank(), "timeout": _MEETING_S}
    several: dict[str, Any] = {"rdzv_backend": "static", "run_id": folder.name, "rdzv_configs": place}
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=processes,
        rdzv_endpoint=ranks.rendezvous_endpoint(),
        **(several if nodes > 1 else alone),
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / f"logs-{ranks.node_rank()}")),
        signals_to_handle=",".join(number.name for number in not_ignored()),
        shutdown_timeout=_CHECKPOINT_S,
    )
    try:
        with restore_signal_handlers():
            elastic_launch(config, sys.executable)("-m", "lingraft.training.distributed.worker", str(folder))
    except SignalException as stopped:
        raise _interruption(stopped.sigval) from stopped
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        asked = {code: number for number, code in EXIT_CODES.items()}
        if failure.exitcode in asked:
            raise _interruption(asked[failure.exitcode]) from failed
        return (
            f"process {rank} of {processes * nodes} ended with exit code {failure.exitcode}, and so the others were "
            "ended. Run the same again: training goes on from its last checkpoint."
        )
    return ""


def _interruption(signal_number: int) -> Interruption:
    message = "asked to stop, and so were all processes of the training. Run the same again to go on."
    return Interruption(signal_number, message)


def _follow_events(
    path: Path, watch: Callable[[TrainingMetrics], None], ended: threading.Event
) -> LingraftError | None:
    """Pass on what the leader tells; returns the first error, if there was one."""
    error = None
    with path.open(encoding="utf-8") as lines:
        while True:
            last = ended.is_set()
            for line in iter(functools.partial(_whole_line, lines), ""):
                news = json.loads(line)
                if "point" in news:
                    watch(TrainingMetrics(*news["point"]))
                elif "left_out" in news:
                    report_skipped_step()
                else:
                    error = error or _error_of(news)
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


def _error_of(news: Mapping[str, str]) -> LingraftError:
    kind: type[LingraftError] = getattr(errors, news["error"])
    return kind.__new__(kind, news["message"])  # some make their message from other arguments
