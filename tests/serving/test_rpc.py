"""gRPC beside REST: the same answers, the same refusals, and the documentation's examples of both."""

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


REFUSED: dict[str, tuple[Any, grpc.StatusCode, str]] = {
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


def test_rpc_takes_raw_contents_tells_metadata_and_unloads_nothing(open_server: SharedServer) -> None:
    with stub(open_server) as service:
        message = message_of("topic")
        expected = service.ModelInfer(message)
        for each in message.inputs:
            texts = list(each.contents.bytes_contents)
            message.raw_input_contents.append(b"".join(len(text).to_bytes(4, "little") + text for text in texts))
            each.ClearField("contents")
        assert values_of(service.ModelInfer(message))["label"] == values_of(expected)["label"]
        told = service.ModelMetadata(pb.ModelMetadataRequest(name="topic"))
        assert [each.name for each in told.inputs] == ["text", "language"]
        assert service.ModelReady(pb.ModelReadyRequest(name="reading")).ready
        for change in (
            lambda: service.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="topic")),
            lambda: service.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="topic")),
        ):
            with pytest.raises(grpc.RpcError):
                change()
    still_answers(open_server)


def test_the_examples_of_the_documentation_are_answered(open_server: SharedServer) -> None:
    address = open_server.url.removeprefix("http://")
    page = (ROOT / "docs" / "guides" / "serving.md").read_text("utf-8")
    examples = re.findall(r"```(sh|python)\n(.*?)```", page, re.DOTALL)
    assert [language for language, _ in examples] == ["sh", "python", "sh"]
    for language, example in examples:
        command = example.replace("localhost:8080", address).replace("localhost:8081", open_server.grpc)
        program = ["bash", "-c"] if language == "sh" else [sys.executable, "-c"]
        done = subprocess.run([*program, command], capture_output=True, text=True, check=True, timeout=120)
        answers = ('"name":"label"', "label ['", '"object":"embedding"')
        assert any(answer in done.stdout for answer in answers), done.stdout
