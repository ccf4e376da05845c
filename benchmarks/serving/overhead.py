"""Time that the server adds to the bare session: a text by REST and by gRPC, against ONNX Runtime on the same ids.

Server, client and session share the cores, and take turns. Beside the shape that is served stands a small one, whose
body takes next to no time: what it does not have is what a large body pushes out of the caches.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.serving import words
from benchmarks.serving.clients import Rest, rpc
from benchmarks.serving.latency import fixed_side
from benchmarks.serving.made import TOPIC, Models, Plan, make
from benchmarks.serving.turns import in_turns, medians
from lingraft.bundle.runtime import Body
from lingraft.config.encoder import EncoderShape
from lingraft.serving.client import run_server

REST, GRPC, BARE = "rest", "grpc", "bare"
SMALL = EncoderShape(width=64, layers=2, attention_heads=2, mlm_heads=(2,), block_tokens=128)
_SMALL_PIECES = 2000
LENGTHS = (16, 64)


def measured(models: Models, rounds: int, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Median milliseconds of each side, by shape and length in tokens."""
    vocabulary = min(_SMALL_PIECES, models.plan.vocabulary)
    small = make(Plan(SMALL, 2, vocabulary, 1), models.folder / "small")
    return {
        "rounds": rounds,
        "served": _measured(models, rounds, lengths),
        "small": _measured(small, rounds, lengths),
    }


def _measured(models: Models, rounds: int, lengths: Sequence[int]) -> dict[str, dict[str, float]]:
    tag = models.plan.tags[0]
    session = Body.open(models.separate(TOPIC)).session
    found = {}
    with (
        run_server([models.bundle("float32", TOPIC)], ready_s=600) as server,
        rpc(server) as by_rpc,
        contextlib.closing(Rest(server)) as by_rest,
    ):
        for length, text in zip(lengths, words.texts(models.tokenizer, lengths), strict=True):
            ids_T = _ids(models, text)
            inputs = {"text": text, "language": tag}
            sides: dict[str, Callable[[], Any]] = {
                REST: lambda inputs=inputs: _require(by_rest.ask(TOPIC, inputs)),
                GRPC: lambda inputs=inputs: by_rpc.ask(TOPIC, inputs),
                BARE: fixed_side(session, ids_T),
            }
            found[str(length)] = medians(in_turns(sides, rounds))
    return found


def _ids(models: Models, text: str) -> Any:
    special = models.tokenizer.special
    return np.array([special.begin, *models.tokenizer.encode(text), special.end])


def _require(answer: tuple[int, dict[str, Any]]) -> None:
    status, body = answer
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {body}")


def overheads(found: dict[str, dict[str, float]], side: str) -> list[float]:
    """Milliseconds more than the bare session, by length."""
    return [one[side] - one[BARE] for one in found.values()]
