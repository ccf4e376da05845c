"""Latency of one text: the bare session, rows of a shared body, and the server over REST and gRPC, in turns.

Server, client and sessions share the cores. Beside the shape that is served stands a small one, whose body takes next
to no time: what it does not have is what a large body pushes out of the caches.

Legend: T tokens.
"""

import contextlib
import http.client
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

from benchmarks.serving import words
from benchmarks.serving.made import TOPIC, Models, Plan, make
from benchmarks.serving.turns import in_turns, medians
from lingraft.bundle.runtime import Body
from lingraft.config.encoder import EncoderShape
from lingraft.serving.bundle import Bundle
from pipelines.endpoint import run_server

FIXED, BODY, REST, GRPC = "a fixed model", "rows and a shared body", "REST", "gRPC"
SIDES = (FIXED, BODY, REST, GRPC)
LENGTHS = (16, 64, 128)
SMALL = EncoderShape(width=64, layers=2, attention_heads=2, mlm_heads=(2,), block_tokens=128)
_SMALL_PIECES = 2000
_TIMEOUT_S = 120


def measured(models: Models, rounds: int, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Median milliseconds of each side, by shape and length in tokens."""
    small = make(Plan(SMALL, 2, min(_SMALL_PIECES, models.plan.vocabulary), 1), models.folder / "small")
    return {
        "rounds": rounds,
        "served": _measured(models, rounds, lengths),
        "small": _measured(small, rounds, lengths),
    }


def _measured(models: Models, rounds: int, lengths: Sequence[int]) -> dict[str, dict[str, float]]:
    session = Body.open(models.separate(TOPIC)).session
    folder, special = models.bundle("float32", TOPIC), models.tokenizer.special
    bundle, found = Bundle.load(folder), {}
    lengths = [each for each in lengths if each <= models.plan.shape.block_tokens]
    with run_server([folder], ready_s=600) as server:
        address = server.url.removeprefix("http://")
        with (
            contextlib.closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection,
            grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel,
        ):
            for length, text in zip(lengths, words.texts(models.tokenizer, lengths), strict=True):
                ids = [special.begin, *models.tokenizer.encode(text), special.end]
                asked = {"text": text, "language": models.plan.tags[0]}
                sides = {
                    FIXED: _fixed(session, ids),
                    BODY: _in_each_language(bundle, ids),
                    REST: _rest(connection, asked),
                    GRPC: _grpc(channel, asked),
                }
                found[str(length)] = medians(in_turns(sides, rounds))
    return found


def _fixed(session: Any, ids: Sequence[int]) -> Callable[[], Any]:
    """The floor: plain ONNX Runtime on one model, from ids to logits."""
    ids_BT = np.array([ids])
    given = {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT)}
    names = [output.name for output in session.get_outputs()]
    return lambda: session.run(names, given)


def _in_each_language(bundle: Bundle, ids: Sequence[int]) -> Callable[[], Any]:
    languages = itertools.cycle(bundle.languages)
    return lambda: bundle.body.run(*bundle.gather([(next(languages), ids)]))


def _rest(connection: http.client.HTTPConnection, asked: Mapping[str, str]) -> Callable[[], Any]:
    tensors = [{"name": key, "shape": [1], "datatype": "BYTES", "data": [value]} for key, value in asked.items()]
    body = json.dumps({"inputs": tensors})

    def ask() -> Any:
        connection.request("POST", f"/v2/models/{TOPIC}/infer", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {answer}")
        return answer

    return ask


def _grpc(channel: grpc.Channel, asked: Mapping[str, str]) -> Callable[[], Any]:
    service = GRPCInferenceServiceStub(channel)
    tensors = [
        pb.ModelInferRequest.InferInputTensor(
            name=key, datatype="BYTES", shape=[1], contents=pb.InferTensorContents(bytes_contents=[value.encode()])
        )
        for key, value in asked.items()
    ]
    return lambda: service.ModelInfer(pb.ModelInferRequest(model_name=TOPIC, inputs=tensors), timeout=_TIMEOUT_S)
