"""A soak: the real server at 80% of what it can do, while languages come, change, go back and go.

    python -m benchmarks.serving.soak [--minutes 15] [--page DIR]

A server process follows a folder of publications, which is written by hand and by `lingraft publish champion` from a
real MLflow server. A generator in a process of its own asks over REST and gRPC: first as fast as it is answered, to
measure capacity, then by Poisson arrivals at a fixed rate, whatever the answers take. Every ten seconds something
changes (`soaking.changes`), bad versions among it. Every answer must be one version's that may stand at that moment.
Memory, file descriptors and threads of the server must not grow. Ends with 1 if anything is wrong.
"""

import argparse
import contextlib
import logging
import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.serving.soaking import verdict
from benchmarks.serving.soaking.answers import Answer
from benchmarks.serving.soaking.changes import Change, Done, Driver, Registry, cycle
from benchmarks.serving.soaking.made import LABELS, TASK, Made, Size, versions
from benchmarks.serving.soaking.page import write
from benchmarks.serving.soaking.processes import Load, champion, mlflow, require_healthy
from benchmarks.serving.soaking.watch import Clock, Sample, Watch, clock, sample, taken_by_others
from benchmarks.speed.machine import commit, described
from lingraft.console import say
from lingraft.errors import ServingError
from lingraft.serving.client import RunningServer, run_server
from lingraft.tracking.client import environment

_TELL_EVERY_S = 10.0
_IDLE_S = 6.0
"""The server closes connections that were idle for 5 s."""
_TAIL_BYTES = 2**20
_FOLLOW_S = 0.5
_QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
_SERVER_READY_S = 300.0


class Settings(NamedTuple):
    """How hard and how long."""

    size: Size
    minutes: float
    change_every_s: float
    capacity_s: float
    clients: int
    share: float
    """Share of capacity that is asked for."""
    at_once: int
    """Requests of a protocol that are under way at a time, as from a client's pool of connections; those of both are
    fewer than the server takes by default."""


@dataclass
class Course:
    """Events of a soak."""

    driver: Driver
    records: Path
    capacity_per_s: float = 0.0
    rate_per_s: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0
    done: list[Done] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    sockets_left: int = 0
    """When the generator has gone, beside those of before it came."""

    @property
    def answers(self) -> list[Answer]:
        """Answers of the soak itself."""
        lines = self.records.read_text(encoding="utf-8").splitlines()
        return [answer for line in lines if (answer := Answer.parse(line)).due_s >= self.began_s]


def soaked(settings: Settings, folder: Path) -> Course:
    """Make everything, start everything, and soak.

    Raises:
        ServingError: a process ended, or a change was not taken up.
    """
    published = folder / "published"
    published.mkdir()
    with mlflow(folder) as url, environment({"MLFLOW_TRACKING_URI": url, **_QUIET}):
        say("making bundles")
        made = Made.make(settings.size, folder / "made")
        require_healthy(url)
        say(f"registering them at {url}")
        registry = Registry(made)
        with (
            champion(registry.model, published, made.bundles["started"], folder / "champion.log"),
            _server(made, published) as server,
        ):
            before = sample(server.process.pid).sockets
            with Load.started(_plan(made, server, folder, settings), folder) as load:
                driver = Driver(made, published, lambda languages: load.order("ask", languages=languages))
                course = Course(driver, folder / "answers.jsonl")
                _measure_capacity(course, load, settings)
                _soak(course, load, server, cycle(made, registry, published), settings)
            course.sockets_left = _sockets(server) - before
    return course


def _sockets(server: RunningServer) -> int:
    """That the server has when idle connections have had the time to be closed."""
    time.sleep(_IDLE_S)
    return sample(server.process.pid).sockets


@contextlib.contextmanager
def _server(made: Made, published: Path) -> Iterator[RunningServer]:
    flags = ("--no-detect", f"--follow={published}", f"--follow-s={_FOLLOW_S}")
    with run_server([made.bundles["started"]], _SERVER_READY_S, flags) as server:
        yield server


def _plan(made: Made, server: RunningServer, folder: Path, settings: Settings) -> dict[str, Any]:
    said = {
        language: {version: values_NC.tolist() for version, values_NC in of_version.items()}
        for language, of_version in made.expected.items()
    }
    return {
        "url": server.url,
        "grpc": server.grpc,
        "model": TASK,
        "at_once": settings.at_once,
        "labels": LABELS,
        "texts": made.texts,
        "expected": said,
        "languages": [*versions("started")],
        "records": str(folder / "answers.jsonl"),
        "seed": 1,
    }


def _measure_capacity(course: Course, load: Load, settings: Settings) -> None:
    load.order("closed", clients=settings.clients, seconds=settings.capacity_s / 4)
    found = load.order("closed", clients=settings.clients, seconds=settings.capacity_s)
    course.capacity_per_s = found["answers"] / found["elapsed_s"]
    course.rate_per_s = settings.share * course.capacity_per_s
    say(f"capacity {course.capacity_per_s:.1f} requests/s; soaking at {course.rate_per_s:.1f}/s")


def _soak(course: Course, load: Load, server: RunningServer, changes: list[Change], settings: Settings) -> None:
    pid = server.process.pid

    def tell() -> None:
        course.clocks.append(clock(pid))
        say(_line(course, watch.samples[-1]))

    watch = Watch(pid, tell, _TELL_EVERY_S)
    course.samples = watch.samples
    course.began_s = time.monotonic()
    course.clocks.append(clock(pid))
    load.order("open", rate=course.rate_per_s)
    with watch.watching():
        _change(course, server, changes, settings)
    course.clocks.append(clock(pid))
    load.order("end")
    course.ended_s = time.monotonic()


def _change(course: Course, server: RunningServer, changes: list[Change], settings: Settings) -> None:
    """Change after change, until the time is over."""
    until_s = course.began_s + 60 * settings.minutes
    for number in range(math.ceil(60 * settings.minutes / settings.change_every_s)):
        due_s = course.began_s + (number + 0.5) * settings.change_every_s
        time.sleep(max(0.0, min(due_s, until_s) - time.monotonic()))
        if time.monotonic() >= until_s:
            return
        if (status := server.process.poll()) is not None:
            raise ServingError(f"the server has ended with status {status} in the midst of the soak.")
        course.done.append(course.driver.carry_out(changes[number % len(changes)]))
    time.sleep(max(0.0, until_s - time.monotonic()))


def _line(course: Course, last: Sample) -> str:
    """How it goes, from the answers of the last ten seconds."""
    now_s = time.monotonic()
    lines = _tail(course.records)
    answers = [each for each in map(Answer.parse, lines) if each.done_s >= now_s - _TELL_EVERY_S]
    bad = sum(bool(each.failed) or any(len(names) != 1 for names in each.versions.values()) for each in answers)
    found = verdict.percentiles([1000 * each.latency_s for each in answers] or [0.0])
    others = taken_by_others(course.clocks[-2:])[-1]
    return (
        f"{now_s - course.began_s:5.0f} s: {len(answers) / _TELL_EVERY_S:.0f} answers/s, p50 {found['p50_ms']:.0f} ms, "
        f"p99 {found['p99_ms']:.0f} ms, bad {bad}; {last.rss_bytes / 2**20:.1f} MiB, {last.descriptors} "
        f"descriptors, {last.threads} threads; {len(course.done)} changes; others take {others:.0%}"
    )


def _tail(records: Path) -> list[str]:
    """Complete lines of the end of a file that is being written."""
    with records.open("rb") as stream:
        stream.seek(max(0, records.stat().st_size - _TAIL_BYTES))
        lines = stream.read().decode().split("\n")
    return [line for line in lines[1:-1] if line]


def found_in(course: Course, settings: Settings, bounds: verdict.Bounds) -> dict[str, Any]:
    """The record of a soak."""
    answers, began_s = course.answers, course.began_s
    faults = verdict.faults_of(answers, course.driver.timeline)
    warm_s = began_s + verdict.WARM_UP * 60 * settings.minutes
    grown = verdict.grown(course.done, course.samples, warm_s)
    others = taken_by_others(course.clocks)
    spent = course.clocks[-1].server_s - course.clocks[0].server_s
    return {
        "machine": described(),
        "commit": commit(),
        "settings": settings._asdict() | {"size": settings.size._asdict()},
        "bounds": vars(bounds),
        "capacity_per_s": round(course.capacity_per_s, 2),
        "rate_per_s": round(course.rate_per_s, 2),
        "elapsed_s": round(course.ended_s - began_s, 1),
        "warm_up_s": round(warm_s - began_s, 1),
        "answers": {name: sum(each.by == name for each in answers) for name in ("rest", "grpc")},
        "latency": verdict.percentiles([1000 * each.latency_s for each in answers]),
        "latencies": verdict.latencies(answers, began_s),
        "changes": [each._replace(at_s=round(each.at_s - began_s, 2))._asdict() for each in course.done],
        "samples": [each._replace(at_s=round(each.at_s - began_s, 2)) for each in course.samples],
        "grown": {
            name: each._asdict() | {"bound": verdict.bound_of(name, each, bounds)} for name, each in grown.items()
        },
        "others": [round(each, 3) for each in others],
        "server_share": round(spent / (course.clocks[-1].at_s - course.clocks[0].at_s), 3),
        "faults": verdict.shown_faults(faults),
        "sockets_left": course.sockets_left,
        "problems": verdict.problems(faults, grown, bounds, course.sockets_left),
    }


def main() -> None:
    """Soak, write what was found, and end with 1 if anything was wrong."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    # Whatever breaks the soak off, its servers are to end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = _parser().parse_args()
    settings = Settings(
        size=Size(given.width, given.layers, given.rows),
        minutes=given.minutes,
        change_every_s=given.change_every_s,
        capacity_s=given.capacity_s,
        clients=given.clients,
        share=given.share,
        at_once=given.at_once,
    )
    bounds = verdict.Bounds(memory_share=given.memory_share)
    with contextlib.ExitStack() as stack:
        folder = given.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        found = found_in(soaked(settings, folder), settings, bounds)
    conclude(found, given.page)


def conclude(found: dict[str, Any], folder: Path | None) -> None:
    """Write a page, and end with 1 if anything was wrong."""
    print(write(found, folder))
    if found["problems"]:
        sys.exit("\n".join(found["problems"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--minutes", type=float, default=15.0, help="how long, after capacity was measured")
    add("--change-every-s", type=float, default=10.0, help="seconds from one change to the next")
    add("--capacity-s", type=float, default=20.0, help="seconds that capacity is measured for")
    add("--clients", type=int, default=16, help="clients that measure it")
    add("--share", type=float, default=0.8, help="of capacity that is asked for")
    add("--at-once", type=int, default=48, help="requests of a protocol that are under way, at most")
    add("--layers", type=int, default=4, help="of the body")
    add("--width", type=int, default=128, help="of the body; a multiple of 32")
    add("--rows", type=int, default=8000, help="of each table")
    add("--memory-share", type=float, default=verdict.Bounds.memory_share, help="by which memory may grow")
    add("--work", type=Path, help="new folder for all that is made, to be looked at afterwards")
    add("--page", type=Path, help="folder for serving-soak.md, .json.xz and .png")
    return parser


if __name__ == "__main__":
    main()
