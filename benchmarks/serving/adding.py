"""A language that comes while a server runs: seconds to its first right answer, and the memory it takes.

Time is a real server's, which follows a folder, from the publication's record to the last task's right answer; what
`lingraft publish` takes before that is told beside it. The probability of a right answer is that of the same bundle
in this process. Memory is that of a process of its own (`memory_side`), once every row has been read.
"""

import itertools
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving import words
from benchmarks.serving.clients import Rest
from benchmarks.serving.made import ADDED, TOPIC, Models
from benchmarks.serving.memory import run_side
from lingraft.bundle.format import TABLE_FORMATS, TableFormat
from lingraft.serving.bundle import Bundle
from lingraft.serving.client import run_server
from lingraft.serving.handlers.classification import TEXT_CLASSIFICATION
from lingraft.serving.handlers.handler import TaskInput, run_batch
from lingraft.serving.publishing.publish import publish, withdraw

_LANGUAGES = 6
"""Added one after the other, where memory is measured."""
_TOKENS = 24
_POLL_S = 0.01
_LONGEST_S = 600
_CLOSE = 1e-4
"""Largest difference of probabilities that the same body gives to the same ids."""


def measured(models: Models, rounds: int) -> dict[str, Any]:
    """Seconds of each round and bytes, by the tables' format."""
    return {
        "rounds": rounds,
        "seconds": _seconds(models, rounds),
        "memory": {tables: _memory(models, tables) for tables in TABLE_FORMATS},
    }


def _memory(models: Models, tables: TableFormat) -> dict[str, float]:
    """Bytes of a table, and those that a language adds: the slope over some, since the heap goes up and down by MB."""
    served = (str(models.addition(tables, task)) for task in models.plan.task_names)
    steps = run_side("added", ",".join(models.plan.tags[:_LANGUAGES]), *served, *map(str, models.bundles(tables)))
    slope, _ = np.polyfit(range(len(steps)), [step["bytes"] for step in steps], 1)
    return {"table": steps[-1]["tables"], "added": float(slope)}


def _seconds(models: Models, rounds: int) -> dict[str, list[float]]:
    """Return seconds of publishing, and from there to right answers; the language is withdrawn after each round."""
    found: dict[str, list[float]] = {"publishing": [], "answering": []}
    (text,) = words.texts(models.tokenizer, [_TOKENS])
    expected = _expected(models, text)
    with tempfile.TemporaryDirectory() as folder:
        follow = ["--no-detect", f"--follow={folder}"]
        with (
            run_server(models.bundles("float32"), ready_s=_LONGEST_S, settings=follow) as server,
            closing(Rest(server)) as rest,
        ):
            for _ in range(rounds):
                began = time.perf_counter()
                made = [
                    publish(models.addition("float32", task), Path(folder), "benchmark", [ADDED])
                    for task in models.plan.task_names
                ]
                published = time.perf_counter()
                _until(rest, models, text, expected)
                found["publishing"].append(published - began)
                found["answering"].append(time.perf_counter() - published)
                for each in itertools.chain(*made):
                    withdraw(Path(folder), each.task, each.language, "benchmark")
                _until(rest, models, text, None)
    return found


def _expected(models: Models, text: str) -> list[float]:
    """Probabilities that the added language's first right answer has."""
    bundle = Bundle.load(models.addition("float32", TOPIC))
    encoded = TEXT_CLASSIFICATION.encode(bundle, TaskInput({"text": [text]}, [ADDED], {"truncate": False}))
    found: list[float] = encoded.decode(run_batch(bundle, encoded.rows))["probabilities"][0].tolist()
    return found


def _until(rest: Rest, models: Models, text: str, expected: list[float] | None) -> None:
    """Ask until every task answers in the added language, and rightly; until none does, if nothing is expected."""
    left, deadline_s = list(models.plan.task_names), time.monotonic() + _LONGEST_S
    while left:
        status, body = rest.ask(left[0], {"text": text, "language": ADDED})
        if (status == 200) == (expected is not None):
            if expected is not None and left[0] == TOPIC:
                _require_near(body, expected)
            left.pop(0)
            continue
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"after {_LONGEST_S} s {left[0]!r} still answers {status}: {body}")
        time.sleep(_POLL_S)


def _require_near(body: dict[str, Any], expected: list[float]) -> None:
    (actual,) = (output["data"] for output in body["outputs"] if output["name"] == "probabilities")
    if not all(abs(one - other) <= _CLOSE for one, other in zip(actual, expected, strict=True)):
        raise RuntimeError(f"the first answer is {actual}, and should be {expected}")
