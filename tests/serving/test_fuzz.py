"""What nobody sends on purpose: no answer may be a server's error, over REST or gRPC.

`FUZZ_REQUESTS` says how many requests of each sort are tried; counts are printed with `pytest -s`.
"""

import json
import os
import random
from collections import Counter
from typing import Any

import grpc
import httpx
import pytest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb

from tests.serving.asking import JSON, VALID, infer, still_answers
from tests.serving.rpc import message_of
from tests.serving.shared import SharedServer

pytestmark = pytest.mark.integration
REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "60"))
FAILURES = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "ABORTED"}


def damaged(message: bytes, draw: random.Random) -> bytes:
    found = bytearray(message)
    for _ in range(draw.randint(1, 4)):
        place, length = draw.randrange(len(found) + 1), draw.randint(0, 20)
        found[place : place + length] = draw.choice((b"", draw.randbytes(1), found[place : place + 30]))
    return bytes(found)


ODD_FIELDS: dict[str, list[Any]] = {
    "name": ["", "text", "language", "\0", "x" * 5000],
    "datatype": ["FP32", "FP16", "", "BYTES", "bytes", "INT64"],
    "shape": [[], [0], [-1], [2**62], [1, 1], [2**31, 2**31, 4]],
    "bytes_contents": [[], [b"\xff\xfe"], [b"\0"], [b"k" * 40_000], [b""] * 70],
    "fp32_contents": [[float("nan"), float("inf")], [1.0] * 100],
    "raw_input_contents": [[b""], [b"\xff\xff\xff\xff"] * 2, [b"\x04\0\0\0ki"] * 2, [b"\x02\0\0\0ki"] * 2],
    "parameters": [("truncate", -1), ("top_k", 2**62), ("", 1), ("top_k", 2)],
    "outputs": ["label", "", "x" * 3000],
    "model_name": ["", "../topic", "topic\0", "x" * 5000, "fill-mask"],
    "id": ["\0", "x" * 5000, "7"],
}


def odd_message(model: str, draw: random.Random) -> bytes:
    message = message_of(model)
    for _ in range(draw.randint(1, 3)):
        field = draw.choice(list(ODD_FIELDS))
        put(message, field, draw.choice(ODD_FIELDS[field]), draw)
    return bytes(message.SerializeToString())


def put(message: Any, field: str, value: Any, draw: random.Random) -> None:
    each = draw.choice(message.inputs)
    if field in ("name", "datatype"):
        setattr(each, field, value)
    elif field == "shape":
        each.shape[:] = value
    elif field.endswith("_contents") and field != "raw_input_contents":
        getattr(each.contents, field)[:] = value
    elif field == "raw_input_contents":
        message.raw_input_contents[:] = value
    elif field == "parameters":
        message.parameters[value[0]].int64_param = value[1]
    elif field == "outputs":
        message.outputs.add(name=value)
    else:
        setattr(message, field, value)


def outcome(call: Any, sent: bytes) -> tuple[str, str]:
    try:
        pb.ModelInferResponse.FromString(call(sent, timeout=60))
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def test_messages_that_are_not_as_they_should_be(open_server: SharedServer) -> None:
    draw, counts = random.Random(2), Counter[str]()
    with grpc.insecure_channel(open_server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(REQUESTS):
            sent = odd_message(list(VALID)[number % len(VALID)], draw)
            status, reason = outcome(call, sent)
            counts[status] += 1
            assert status not in FAILURES, (sent, reason)
            assert status == "OK" or reason
    print(f"\ngRPC: {dict(counts)}")
    assert counts["INVALID_ARGUMENT"] > REQUESTS / 4
    still_answers(open_server)


def test_bodies_that_are_not_as_they_should_be(open_server: SharedServer) -> None:
    draw, counts = random.Random(1), Counter[int]()
    with httpx.Client(base_url=open_server.url, timeout=60, trust_env=False) as client:
        for number in range(REQUESTS):
            model = list(VALID)[number % len(VALID)]
            sent = damaged(json.dumps(VALID[model]).encode(), draw)
            response = client.post(infer(model), content=sent, headers=JSON)
            counts[response.status_code] += 1
            assert response.status_code < 500, (sent, response.text)
            assert response.status_code == 200 or response.json()["error"]
    print(f"\nREST: {dict(counts)}")
    assert counts[400] > REQUESTS / 8
    still_answers(open_server)
