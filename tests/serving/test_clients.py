"""What Triton's client sends, and KServe's clients as they come."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

from tests.serving.asking import body, infer, outputs_of
from tests.serving.shared import SharedServer

pytestmark = pytest.mark.integration
TEXTS = {"text": ["kilo ba", "de"], "language": ["de", "tr"]}
INFER = infer("topic")


@pytest.fixture(scope="module")
def expected(open_server: SharedServer) -> list[str]:
    response = httpx.post(
        open_server.url + INFER, json=body(TEXTS["text"], TEXTS["language"]), timeout=60, trust_env=False
    )
    return outputs_of(response)["label"]


def as_binary(outputs: Any) -> tuple[bytes, dict[str, str]]:
    """A request of binary tensors, as Triton's client sends it."""
    inputs, raw = [], b""
    for name, values in TEXTS.items():
        tensor = b"".join(len(value).to_bytes(4, "little") + value for value in map(str.encode, values))
        parameters = {"binary_data_size": len(tensor)}
        inputs.append({"name": name, "shape": [2], "datatype": "BYTES", "parameters": parameters})
        raw += tensor
    head = json.dumps({"inputs": inputs} | outputs).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head))}


@pytest.mark.parametrize(
    "outputs",
    [
        {"outputs": [{"name": "label", "parameters": {"binary_data": True}}]},
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "label", "parameters": {"binary_data": False}}]},
    ],
)
def test_tensors_are_sent_and_answered_as_bytes(open_server: SharedServer, expected: list[str], outputs: Any) -> None:
    content, headers = as_binary(outputs)
    response = httpx.post(open_server.url + INFER, content=content, headers=headers, timeout=60, trust_env=False)
    assert response.is_success, response.text
    head_bytes = int(response.headers.get("inference-header-content-length", len(response.content)))
    first = json.loads(response.content[:head_bytes])["outputs"][0]
    assert (first["name"], first["shape"]) == ("label", [2])
    raw = response.content[head_bytes:][: first.get("parameters", {}).get("binary_data_size", 0)]
    assert first.get("data") == expected or raw == b"".join(
        len(label).to_bytes(4, "little") + label.encode() for label in expected
    )


@pytest.mark.parametrize("cut", [1, 30])
def test_bytes_that_are_no_tensor_are_refused(open_server: SharedServer, cut: int) -> None:
    content, headers = as_binary({})
    response = httpx.post(open_server.url + INFER, content=content[:-cut], headers=headers, timeout=60, trust_env=False)
    assert (response.status_code, "error" in response.json()) == (400, True)


def test_json_needs_no_content_type(open_server: SharedServer, expected: list[str]) -> None:
    sent = json.dumps(body(TEXTS["text"], TEXTS["language"], parameters={"binary_data_output": False})).encode()
    assert (
        outputs_of(httpx.post(open_server.url + INFER, content=sent, timeout=60, trust_env=False))["label"] == expected
    )


def test_kserve_s_clients_are_answered(open_server: SharedServer, expected: list[str]) -> None:
    def asked(binary: bool) -> InferRequest:
        inputs = []
        for name, values in TEXTS.items():
            inputs.append(InferInput(name, [2], "BYTES"))
            inputs[-1].set_data_from_numpy(np.array(values, np.object_), binary_data=binary)
        return InferRequest("topic", inputs)

    async def ask() -> list[Any]:
        rest = InferenceRESTClient(RESTConfig(protocol="v2", transport=httpx.AsyncHTTPTransport()))
        rpc = InferenceGRPCClient(open_server.grpc, channel_args=[("grpc.enable_http_proxy", 0)])
        answers = [await rest.infer(open_server.url, asked(binary), model_name="topic") for binary in (False, True)]
        answers += [await rpc.infer(asked(binary)) for binary in (False, True)]
        await asyncio.gather(rest.close(), rpc.close())
        return answers

    for answer in asyncio.run(ask()):
        labels = answer.get_output_by_name("label").as_numpy().tolist()
        assert [label.decode() if isinstance(label, bytes) else label for label in labels] == expected
