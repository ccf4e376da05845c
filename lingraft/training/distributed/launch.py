"""A training stage on several processes: whoever calls it gets one artifact, one curve and one error.

`LINGRAFT_PROCESSES` says how many on this machine; the command line (`lingraft --processes 2 ...`) and pipelines set
it. The caller of a stage stays one process, so tracking, pipelines and records need not know.
"""

import functools
import inspect
import itertools
import json
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec

from pydantic_core import to_jsonable_python

from lingraft import errors, ranks
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import read_manifest
from lingraft.errors import LingraftError, RecipeError, TrainingError
from lingraft.retry import poll
from lingraft.signals import EXIT_CODES, Interruption, not_ignored, restore_signal_handlers
from lingraft.training.metrics import report_skipped_step
from lingraft.training.schedule import MetricsCallback, TrainingMetrics

CALL_FILE, EVENTS_FILE = "call.json", "news.jsonl"
_WORKER = "lingraft.stages.worker"
_ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, LingraftError)
}
"""Errors that a process may report, by name."""
_POLL_S = 0.2
_CHECKPOINT_S = 25

Arguments = ParamSpec("Arguments")


def distributed(stage: Callable[Arguments, Artifact]) -> Callable[Arguments, Artifact]:
    """Run a stage, which must take `watch` and `out`, on as many processes as are wanted.

    Raises:
        RecipeError: LINGRAFT_PROCESSES is not a number of processes.
        TrainingError: a process was lost. The checkpoints stay.
        Interruption: this process was asked to stop, and so were those that it had started.
    """

    @functools.wraps(stage)
    def on_all_processes(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Artifact:
        processes = _process_count()
        if processes == 1 or ranks.world_size() > 1:
            return stage(*args, **kwargs)
        arguments = inspect.signature(stage).bind(*args, **kwargs).arguments
        watch = arguments.pop("watch")
        with tempfile.TemporaryDirectory(prefix="lingraft-") as temporary:
            folder = Path(temporary)
            (folder / EVENTS_FILE).touch()
            write_json(folder / CALL_FILE, {"stage": stage.__name__, "arguments": to_jsonable_python(arguments)})
            _run(processes, folder, watch)
        return Artifact.load(arguments["out"], read_manifest(arguments["out"]).kind)

    return on_all_processes


def _process_count() -> int:
    wanted = os.environ.get(ranks.PROCESSES_VARIABLE, "1")
    if wanted == ranks.ALL_PROCESSES:
        import torch

        return max(1, torch.cuda.device_count())
    if not (wanted.isdecimal() and int(wanted)):
        raise RecipeError(
            f"{ranks.PROCESSES_VARIABLE} is {wanted!r}. Set it to a number of processes, from 1, to "
            f"{ranks.ALL_PROCESSES!r}, or not at all."
        )
    return int(wanted)


def _run(processes: int, folder: Path, watch: MetricsCallback) -> None:
    """Start the processes, and pass on what rank zero reports, until all have ended."""
    ended = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="news") as reader:
        try:  # from here on, or the reader would be waited for although nobody has told it of the end
            reported = reader.submit(_follow_events, folder / EVENTS_FILE, watch, ended)
            lost = _launch(processes, folder)
        finally:
            ended.set()
        error = reported.result()
    if error or lost:
        raise error or TrainingError(lost)


def _launch(processes: int, folder: Path) -> str:
    """Start the processes by the launcher of `torchrun`, and wait for them; returns a message if one was lost.

    The launcher is called and not its program: the program turns each of our exit codes into 1.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_endpoint="localhost:0",
        rdzv_backend="c10d",
        run_id=uuid.uuid4().hex,
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs")),
        signals_to_handle=",".join(number.name for number in not_ignored()),
        shutdown_timeout=_CHECKPOINT_S,
    )
    try:
        with restore_signal_handlers():
            elastic_launch(config, sys.executable)("-m", _WORKER, str(folder))
    except SignalException as stopped:
        raise _interruption(stopped.sigval) from stopped
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        signals = {code: number for number, code in EXIT_CODES.items()}
        if failure.exitcode in signals:
            raise _interruption(signals[failure.exitcode]) from failed
        return (
            f"process {rank} of {processes} ended with exit code {failure.exitcode}, and so the others were "
            "ended. Run the same again: training goes on from its last checkpoint."
        )
    return ""


def _interruption(signal_number: int) -> Interruption:
    message = "asked to stop, and so were all processes of the training. Run the same again to go on."
    return Interruption(signal_number, message)


def _follow_events(path: Path, watch: MetricsCallback, ended: threading.Event) -> LingraftError | None:
    """Pass on what rank zero reports; returns the first error, if there was one."""
    error = None
    with path.open(encoding="utf-8") as lines:
        for _ in itertools.chain(poll(_POLL_S, ended=ended), [None]):  # once more for what came before the end
            for line in iter(functools.partial(_whole_line, lines), ""):
                event = json.loads(line)
                if "point" in event:
                    watch(TrainingMetrics(*event["point"]))
                elif "skipped" in event:
                    report_skipped_step()
                else:
                    error = error or _error_of(event)
    return error


def _whole_line(lines: Any) -> str:
    """Read the next line; an empty one while it is still being written."""
    place = lines.tell()
    line: str = lines.readline()
    if line.endswith("\n"):
        return line
    lines.seek(place)
    return ""


def _error_of(event: Mapping[str, str]) -> LingraftError:
    kind = _ERRORS[event["error"]]
    return kind.__new__(kind, event["message"])  # some make their message from other arguments
