"""What nobody sends on purpose: no answer may be a server's error, over REST or gRPC.

`FUZZ_REQUESTS` says how many requests of each sort are tried; counts are printed with `pytest -s`.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from lingraft.serving.ask import Running, running
from tests.serving.asking import JSON, RLM, ZWJ, ZWSP, infer, inputs
from tests.serving.rpc import asked, stub, values_of

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration
REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "150"))
FAILURES = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "ABORTED"}
VALID: dict[str, dict[str, Any]] = {
    "topic": inputs(["de", "en"], text=["kilo ba", f"{RLM}de{ZWSP} lo"]),
    "inference": inputs(["tr"], text=["kilo"], text_pair=["ba de"]),
    "reading": inputs(["en"], question=["ba"], context=["ba de kilo lo " * 20]),
    "names": inputs(["de"], text=[f"kilo (ba) na{ZWJ}pe."]) | {"parameters": {"truncate": True}},
    "fill-mask": inputs(["en"], text=["ba <mask> lo"]) | {"parameters": {"top_k": 3}},
    "embeddings": inputs(["auto"], text=["kilo"]) | {"outputs": [{"name": "embedding"}], "id": "7"},
}
TEXTS = (
    "",
    " ",
    "kilo",
    "\0",
    "\ud800",
    "\udfff\ud800",
    "<mask>",
    "auto",
    "k" * 30_000,
    RLM * 50,
    "\U0010ffff",
    "\ufdd0",
)
ODD: tuple[Any, ...] = (*TEXTS, None, True, -1, 0, 2**63, 2**64, 1.5, -0.0, 1e308, [], {}, [[]], {"": {}}, [None] * 70)


@pytest.fixture(scope="module")
def server(bundles: list[Path]) -> Iterator[Running]:
    with running(bundles) as started:
        yield started


def still_answers(server: Running) -> None:
    """The same server answers every kind of question after all that."""
    assert server.process.poll() is None
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        for model in ("topic", "inference", "reading", "names", "fill-mask"):
            assert client.post(infer(model), json=VALID[model]).status_code == 200


def tried(operation: Any, mode: GenerationMode, checks: list[Any]) -> Counter[int]:
    """Send what an operation allows, or what it does not, and hold the answers to what it says of them."""
    counts: Counter[int] = Counter()

    @settings(
        max_examples=max(10, REQUESTS // 10) if operation.method == "post" else 2,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        response = case.call()
        counts[response.status_code] += 1
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=checks)

    ask()
    return counts


def test_what_the_openapi_description_allows_and_what_it_does_not(server: Running) -> None:
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    checks = [content_type_conformance, response_schema_conformance, status_code_conformance]
    allowed, forbidden = Counter[int](), Counter[int]()
    for found in schema.get_all_operations():
        operation = found.ok()
        allowed += tried(operation, GenerationMode.POSITIVE, checks)
        if operation.method == "post":
            forbidden += tried(operation, GenerationMode.NEGATIVE, [*checks, negative_data_rejection])
    print(f"\nschemathesis: allowed {dict(allowed)}, forbidden {dict(forbidden)}")
    assert allowed[200] > 10
    assert sum(forbidden.values()) > 50
    still_answers(server)


def bent(value: Any, draw: random.Random) -> Any:
    """A JSON value with something in it put in another's place, taken away, doubled or added."""
    if draw.random() < 0.25 or not value or not isinstance(value, dict | list):
        return draw.choice(ODD)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = draw.choice(list(copy)) if isinstance(copy, dict) else draw.randrange(len(copy))
    match draw.randrange(6):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, list):
            copy.insert(key, copy[key])
        case 1:
            copy[draw.choice(TEXTS)] = draw.choice(ODD)
        case _:
            copy[key] = bent(copy[key], draw)
    return copy


def damaged(message: bytes, draw: random.Random) -> bytes:
    """Bytes with some changed, cut off, doubled or put in."""
    found = bytearray(message)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(found) + 1)
        match draw.randrange(4):
            case 0:
                found[place : place + 1] = bytes([draw.randrange(256)])
            case 1:
                del found[place : place + draw.randint(1, 20)]
            case 2:
                found[place:place] = draw.randbytes(draw.randint(1, 8))
            case 3:
                found[place:place] = found[place : place + 30]
    return bytes(found)


def bent_body(model: str, draw: random.Random) -> bytes:
    found = VALID[model]
    for _ in range(draw.randint(1, 3)):
        found = bent(found, draw)
    return json.dumps(found).encode()


def damaged_body(model: str, draw: random.Random) -> bytes:
    return damaged(json.dumps(VALID[model]).encode(), draw)


@pytest.mark.parametrize("made", [bent_body, damaged_body], ids=["values", "bytes"])
def test_bodies_that_are_not_as_they_should_be(server: Running, made: Callable[[str, random.Random], bytes]) -> None:
    draw, counts = random.Random(1), Counter[int]()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        for number in range(REQUESTS):
            model = list(VALID)[number % len(VALID)]
            sent = made(model, draw)
            response = client.post(infer(model), content=sent, headers=JSON)
            counts[response.status_code] += 1
            assert response.status_code < 500, (sent, response.text)
            assert response.status_code == 200 or response.json()["error"]
    print(f"\nREST, {made.__name__}: {dict(counts)}")
    assert counts[400] > REQUESTS / 4
    still_answers(server)


def message_of(model: str) -> Any:
    given = {each["name"]: each["data"] for each in VALID[model]["inputs"]}
    return asked(model, **given)


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
    """A message of the protocol whose fields do not go together."""
    message = message_of(model)
    for _ in range(draw.randint(1, 3)):
        field = draw.choice(list(ODD_FIELDS))
        put(message, field, draw.choice(ODD_FIELDS[field]), draw)
    return bytes(message.SerializeToString())


def put(message: Any, field: str, value: Any, draw: random.Random) -> None:
    """Set a field of a request, or of one of its inputs."""
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


def damaged_message(model: str, draw: random.Random) -> bytes:
    return damaged(message_of(model).SerializeToString(), draw)


def outcome(call: Any, sent: bytes) -> tuple[str, str]:
    """Status of a call, and the reason of a refusal."""
    try:
        pb.ModelInferResponse.FromString(call(sent, timeout=60))
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


@pytest.mark.parametrize("made", [odd_message, damaged_message], ids=["fields", "bytes"])
def test_messages_that_are_not_as_they_should_be(server: Running, made: Callable[[str, random.Random], bytes]) -> None:
    draw, counts = random.Random(2), Counter[str]()
    with grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(REQUESTS):
            sent = made(list(VALID)[number % len(VALID)], draw)
            status, reason = outcome(call, sent)
            counts[status] += 1
            assert status not in FAILURES, (sent, reason)
            assert status == "OK" or reason
    print(f"\ngRPC, {made.__name__}: {dict(counts)}")
    assert counts["INVALID_ARGUMENT"] > REQUESTS / 4
    still_answers(server)


def test_rpc_answers_what_rest_answers(server: Running) -> None:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client, stub(server) as service:
        for model in ("topic", "inference", "reading", "names", "fill-mask"):
            expected = client.post(infer(model), json=VALID[model] | {"parameters": {}}).json()["outputs"]
            found = service.ModelInfer(message_of(model))
            assert [(each.name, each.datatype, list(each.shape)) for each in found.outputs] == [
                (each["name"], each["datatype"], each["shape"]) for each in expected
            ]
            for each in expected:
                values = values_of(found)[each["name"]]
                assert values == (pytest.approx(each["data"], abs=1e-5) if each["datatype"] == "FP32" else each["data"])


def test_the_examples_of_the_documentation_are_answered(server: Running) -> None:
    address = server.url.removeprefix("http://")
    examples = re.findall(r"```(sh|python)\n(.*?)```", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.DOTALL)
    assert [language for language, _ in examples] == ["sh", "sh", "sh", "python"]
    for language, example in examples:
        command = example.replace("localhost:8080", address).replace("localhost:8081", server.grpc)
        program = ["bash", "-c"] if language == "sh" else [sys.executable, "-c"]
        done = subprocess.run([*program, command], capture_output=True, text=True, check=True, timeout=120)
        assert '"outputs":[{"name":' in done.stdout or "'label': [b'" in done.stdout, done.stdout


def test_rpc_takes_raw_contents_and_tells_metadata(server: Running) -> None:
    with stub(server) as service:
        message = message_of("topic")
        expected = service.ModelInfer(message)
        for each in message.inputs:
            texts = list(each.contents.bytes_contents)
            message.raw_input_contents.append(b"".join(len(text).to_bytes(4, "little") + text for text in texts))
            each.ClearField("contents")
        found = service.ModelInfer(message)
        assert values_of(found)["label"] == values_of(expected)["label"]
        told = service.ModelMetadata(pb.ModelMetadataRequest(name="topic"))
        assert [each.name for each in told.inputs] == ["text", "language"]
        assert service.ModelReady(pb.ModelReadyRequest(name="reading")).ready
        assert service.ServerLive(pb.ServerLiveRequest()).live
        assert service.ServerMetadata(pb.ServerMetadataRequest()).name == "lingraft"
        for unload in (
            lambda: service.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="topic")),
            lambda: service.ModelMetadata(pb.ModelMetadataRequest(name="../topic")),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                unload()
            assert refused.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)
    still_answers(server)
