"""gRPC beside REST: the same answers, the same refusals, and the documentation's examples of both."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb

from tests.serving.asking import LIMITS, VALID, infer, still_answers
from tests.serving.rpc import asked, message_of, stub, values_of
from tests.serving.shared import SharedServer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration
STATUS = grpc.StatusCode


def test_rpc_answers_what_rest_answers(open_server: SharedServer) -> None:
    with httpx.Client(base_url=open_server.url, timeout=60, trust_env=False) as client, stub(open_server) as service:
        for model in ("topic", "inference", "reading", "names", "fill-mask"):
            told = client.post(infer(model), json=VALID[model] | {"parameters": {}}).json()
            expected, found = told["outputs"], service.ModelInfer(message_of(model))
            assert {name: value.string_param for name, value in found.parameters.items()} == told["parameters"]
            assert [(each.name, each.datatype, list(each.shape)) for each in found.outputs] == [
                (each["name"], each["datatype"], each["shape"]) for each in expected
            ]
            for each in expected:
                values = values_of(found)[each["name"]]
                assert values == (pytest.approx(each["data"], abs=1e-5) if each["datatype"] == "FP32" else each["data"])


def with_bytes(sent: bytes) -> Any:
    message = asked("topic", text=["x"], language=["de"])
    message.inputs[0].contents.bytes_contents[:] = [sent]
    return message


def with_parts(**counts: int) -> Any:
    message = asked("topic", text=["kilo"], language=["de"])
    for name, count in counts.items():
        if name == "shape":
            message.inputs[0].shape[:] = [1] * count
        else:
            for _ in range(count):
                getattr(message, name).add()
    return message


REFUSED: dict[str, tuple[Any, grpc.StatusCode, str]] = {
    "many inputs": (with_parts(inputs=1000), STATUS.INVALID_ARGUMENT, "names 1002 inputs; send at most 16"),
    "many outputs": (with_parts(outputs=1000), STATUS.INVALID_ARGUMENT, "names 1000 outputs; send at most 16"),
    "many dimensions": (with_parts(shape=1000), STATUS.INVALID_ARGUMENT, "shape: List should have at most 16"),
    "half a surrogate pair": (with_bytes(b"\xed\xa0\x80"), STATUS.INVALID_ARGUMENT, "UTF-8"),
    "NUL": (with_bytes(b"ki\0lo"), STATUS.INVALID_ARGUMENT, "NUL at character 2"),
    "unknown language": (asked("topic", text=["kilo"], language=["fr"]), STATUS.INVALID_ARGUMENT, "speaks"),
    "unknown model": (asked("../topic", text=["kilo"], language=["de"]), STATUS.NOT_FOUND, "topic"),
    "too large": (with_bytes(b"k" * (LIMITS.body_bytes + 1)), STATUS.RESOURCE_EXHAUSTED, "larger than max"),
}
"""Requests, the status of the refusal, and a part of the reason."""


@pytest.mark.parametrize(("sent", "status", "said"), REFUSED.values(), ids=REFUSED)
def test_rpc_refuses_what_rest_refuses(
    open_server: SharedServer, sent: Any, status: grpc.StatusCode, said: str
) -> None:
    with stub(open_server) as service, pytest.raises(grpc.RpcError) as refused:
        service.ModelInfer(sent)
    assert (refused.value.code(), said in refused.value.details()) == (status, True), refused.value.details()


def test_rpc_takes_raw_contents_and_tells_metadata(open_server: SharedServer) -> None:
    with stub(open_server) as service:
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
    still_answers(open_server)


def test_calls_are_logged_as_requests_are_without_what_was_asked(open_server: SharedServer) -> None:
    with stub(open_server) as service:
        service.ModelInfer(asked("topic", text=["pelonaze", "ba"], language=["tr", "de"]))
        with pytest.raises(grpc.RpcError):
            service.ModelInfer(asked("topic", text=["pelonaze"], language=["pelonaze"]))
        service.ModelReady(pb.ModelReadyRequest(name="topic"))
    whole_lines = open_server.log.read_text("ascii").rpartition("\n")[0].splitlines()
    lines = [line for line in whole_lines if line.startswith("{")]
    told = [each for each in map(json.loads, lines) if each.get("path", "").startswith("grpc:")]
    answer = {"path": "grpc:ModelInfer", "status": "OK", "task": "topic", "texts": 2, "languages": ["de", "tr"]}
    assert answer in [{key: each.get(key) for key in answer} for each in told]
    assert "INVALID_ARGUMENT" in {each["status"] for each in told}
    assert not any("pelonaze" in line for line in lines)


def test_the_examples_of_the_documentation_are_answered(open_server: SharedServer) -> None:
    address = open_server.url.removeprefix("http://")
    page = (ROOT / "docs" / "guides" / "serving.md").read_text("utf-8")
    examples = re.findall(r"```(sh|python)\n(.*?)```", page, re.DOTALL)
    assert [language for language, _ in examples] == ["sh", "sh", "python", "sh"]
    for language, example in examples:
        command = example.replace("localhost:8080", address).replace("localhost:8081", open_server.grpc)
        program = ["bash", "-c"] if language == "sh" else [sys.executable, "-c"]
        done = subprocess.run([*program, command], capture_output=True, text=True, check=True, timeout=120)
        answers = ('"outputs":[{"name":', "'label': [b'", '"object":"embedding"')
        assert any(answer in done.stdout for answer in answers), done.stdout
