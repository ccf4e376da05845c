"""Seconds until a language that is loaded into a running server is answered, and rightly, by all tasks."""

import time
from contextlib import closing
from typing import Any

import httpx

from benchmarks.serving import words
from benchmarks.serving.clients import Rest
from benchmarks.serving.made import ADDED, TOPIC, Models
from lingraft.serving.bundle import Bundle
from lingraft.serving.client import run_server
from lingraft.serving.handlers.classification import TEXT_CLASSIFICATION
from lingraft.serving.handlers.handler import TaskInput, run_batch

_TOKENS = 24
_LONGEST_S = 600
_CLOSE = 1e-4
"""Largest difference of probabilities that the same body gives to the same ids."""


def measured(models: Models, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round; the language is unloaded after it."""
    found: list[float] = []
    (text,) = words.texts(models.tokenizer, [_TOKENS])
    expected = _expected(models, text)
    settings = ["--no-detect", f"--repository={models.addition('float32', TOPIC).parent}"]
    with (
        run_server(models.bundles("float32"), ready_s=_LONGEST_S, settings=settings) as server,
        closing(Rest(server)) as rest,
        httpx.Client(base_url=server.url, timeout=_LONGEST_S, trust_env=False) as client,
    ):
        for _ in range(rounds):
            began = time.perf_counter()
            for task in models.plan.task_names:
                _change(client, task, "load", {"bundle": task, "language": ADDED})
            for task in models.plan.task_names:
                status, body = rest.ask(task, {"text": text, "language": ADDED})
                if status != httpx.codes.OK:
                    raise RuntimeError(f"{task!r} answers {status}: {body}")
                if task == TOPIC:
                    _require_near(body, expected)
            found.append(time.perf_counter() - began)
            for task in models.plan.task_names:
                _change(client, task, "unload", {"language": ADDED})
    return {"seconds": found}


def _change(client: httpx.Client, task: str, verb: str, parameters: dict[str, str]) -> None:
    client.post(f"/v2/repository/models/{task}/{verb}", json={"parameters": parameters}).raise_for_status()


def _expected(models: Models, text: str) -> list[float]:
    """Probabilities that the added language's right answer has."""
    bundle = Bundle.load(models.addition("float32", TOPIC))
    encoded = TEXT_CLASSIFICATION.encode(bundle, TaskInput({"text": [text]}, [ADDED], {"truncate": False}))
    found: list[float] = encoded.decode(run_batch(bundle, encoded.rows))["probabilities"][0].tolist()
    return found


def _require_near(body: dict[str, Any], expected: list[float]) -> None:
    (actual,) = (output["data"] for output in body["outputs"] if output["name"] == "probabilities")
    if not all(abs(one - other) <= _CLOSE for one, other in zip(actual, expected, strict=True)):
        raise RuntimeError(f"the first answer is {actual}, and should be {expected}")
