"""The real server in a process of its own, over HTTP."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from lingraft.artifact import Artifact, Kind
from lingraft.errors import ServingError
from lingraft.serving.ask import running
from lingraft.serving.questions import MAX_BODY_BYTES, MAX_CHARACTERS, MAX_TEXTS
from lingraft.serving.server import require_port
from tests.serving.answers import LANGUAGES, pytorch_logits, rows_of, sentences
from tests.tiny import Tiny

INFER = "/v2/models/topic/infer"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(bundle: Path) -> Iterator[httpx.Client]:
    with running(bundle) as server, httpx.Client(base_url=server.url, timeout=30, trust_env=False) as client:
        yield client


def tensor(name: str, data: list[Any], **changed: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(data)], "data": data} | changed


def body(texts: Any = ("kilo",), languages: Any = ("de",), **more: Any) -> dict[str, Any]:
    return {"inputs": [tensor("text", list(texts)), tensor("language", list(languages))]} | more


def answers(response: httpx.Response) -> dict[str, list[Any]]:
    assert response.is_success, response.text
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/topic/ready", "/metrics", "/"])
def test_health_and_metrics_are_told(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


def test_answers_are_counted_by_path_and_status(client: httpx.Client) -> None:
    def counted(path: str, status: int) -> float:
        line = rf'^lingraft_answers_total{{path="{path}",status="{status}"}} (.*)$'
        found = re.search(line, client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    before = [counted(INFER, 200), counted(INFER, 400), counted("elsewhere", 404)]
    assert client.post(INFER, json=body()).status_code == 200
    assert client.post(INFER, json=body(languages=["xx"])).status_code == 400
    for path in ("/v2/models/other", "/v2/models/another"):
        assert client.get(path).status_code == 404
    after = [counted(INFER, 200), counted(INFER, 400), counted("elsewhere", 404)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 2]


def test_metadata_tells_inputs_outputs_languages_labels_and_limits(client: httpx.Client, bundle: Path) -> None:
    assert client.get("/v2/models").json() == {"models": ["topic"]}
    told = client.get("/v2/models/topic").json()
    assert {entry["name"]: entry["shape"] for entry in told["inputs"]} == {"text": [-1], "language": [-1]}
    assert {entry["name"]: (entry["datatype"], entry["shape"]) for entry in told["outputs"]} == {
        "label": ("BYTES", [-1]),
        "probability": ("FP32", [-1]),
        "probabilities": ("FP32", [-1, 3]),
    }
    assert told["parameters"]["languages"] == sorted(LANGUAGES)
    assert told["parameters"]["labels"] == ["garden", "harbour", "kitchen"]
    assert told["parameters"]["fingerprint"] == Artifact.load(bundle, Kind.BUNDLE).fingerprint
    assert told["parameters"]["max_tokens"] == 32


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_are_pytorch_s_for_the_language(client: httpx.Client, tiny: Tiny, language: str) -> None:
    texts = sentences(language)
    expected_NC = pytorch_logits(tiny, language, rows_of(tiny, language, texts)).softmax(1)
    found = answers(client.post(INFER, json=body(texts, [language])))
    actual_NC = torch.tensor(found["probabilities"]).view(len(texts), -1)
    torch.testing.assert_close(actual_NC, expected_NC, rtol=0, atol=1e-5)
    assert found["probability"] == pytest.approx(actual_NC.amax(1).tolist())
    names = client.get("/v2/models/topic").json()["parameters"]["labels"]
    assert found["label"] == [names[best] for best in actual_NC.argmax(1)]


def test_languages_mixed_in_one_request_are_answered_as_alone_and_in_order(client: httpx.Client) -> None:
    languages = [LANGUAGES[place % 3] for place in range(MAX_TEXTS)]
    texts = [sentences(language)[place % 2] for place, language in enumerate(languages)]
    mixed = answers(client.post(INFER, json=body(texts, languages)))["probability"]
    alone = {
        pair: answers(client.post(INFER, json=body([pair[1]], [pair[0]])))["probability"][0]
        for pair in set(zip(languages, texts, strict=True))
    }
    assert len({round(value, 4) for value in alone.values()}) > 3
    assert mixed == pytest.approx([alone[pair] for pair in zip(languages, texts, strict=True)], abs=1e-5)


def test_only_the_outputs_asked_for_come_and_the_id_comes_back(client: httpx.Client) -> None:
    response = client.post(INFER, json=body(outputs=[{"name": "label"}], id="question 7"))
    assert set(answers(response)) == {"label"}
    assert response.json()["id"] == "question 7"


def test_a_text_longer_than_a_block_is_read_to_the_block_s_end_where_this_is_asked_for(
    client: httpx.Client, tiny: Tiny
) -> None:
    text = " ".join(sentences("de", words=(12, 12, 12)))
    (row,) = rows_of(tiny, "de", [text])
    assert len(row) == 32
    found = answers(client.post(INFER, json=body([text], parameters={"truncate": True})))
    expected_C = pytorch_logits(tiny, "de", [row]).softmax(1)[0]
    torch.testing.assert_close(torch.tensor(found["probabilities"]), expected_C, rtol=0, atol=1e-5)


TEXT, LANGUAGE = body()["inputs"]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown language": (body(languages=["fr"]), "speaks ['de', 'en', 'tr']"),
    "empty text": (body(["kilo", ""]), "text 1 is empty"),
    "blank text": (body([" \n\t"]), "text 0 is empty"),
    "text of nothing visible": (body(["\u200b"]), "text 0 is empty"),
    "longer than a block": (body(["kilo " * 100]), "reads at most 32"),
    "too many characters": (body(["k" * (MAX_CHARACTERS + 1)]), f"at most {MAX_CHARACTERS}"),
    "too many texts": (body(["kilo"] * (MAX_TEXTS + 1)), f"at most {MAX_TEXTS}"),
    "no texts": (body([]), "shape [N]"),
    "two languages for three texts": (body(["a", "b", "c"], ["de", "en"]), "one for each text"),
    "numbers": (body([1, 2]), "type int"),
    "null": (body([None]), "type NoneType"),
    "true": (body([True]), "type bool"),
    "nested list": (body([["kilo"]]), "type list"),
    "object": (body(languages=[{"de": 1}]), "type dict"),
    "other datatype": ({"inputs": [tensor("text", ["a"], datatype="FP32"), LANGUAGE]}, "datatype BYTES"),
    "half precision": ({"inputs": [tensor("text", ["a"], datatype="FP16"), LANGUAGE]}, "FP16"),
    "wrong shape": ({"inputs": [tensor("text", ["a"], shape=[2]), LANGUAGE]}, "its shape is [2]"),
    "matrix": ({"inputs": [tensor("text", ["a"], shape=[1, 1]), LANGUAGE]}, "shape [N]"),
    "shape of words": ({"inputs": [tensor("text", ["a"], shape=["one"]), LANGUAGE]}, "shape.0"),
    "endless shape": ({"inputs": [tensor("text", ["a"], shape=[10**4000]), LANGUAGE]}, "shape [N]"),
    "no language": ({"inputs": [TEXT]}, "send one 'text' and one 'language'"),
    "another input": ({"inputs": [TEXT, LANGUAGE, tensor("mood", ["x"])]}, "send one 'text' and one 'language'"),
    "text twice": ({"inputs": [TEXT, TEXT, LANGUAGE]}, "send one 'text' and one 'language'"),
    "input parameter": ({"inputs": [TEXT | {"parameters": {"a": 1}}, LANGUAGE]}, "it knows none"),
    "no inputs": ({}, "inputs: Field required"),
    "inputs null": ({"inputs": None}, "valid list"),
    "unknown parameter": (body(parameters={"truncat": True}), "the only one is 'truncate'"),
    "parameter of a wrong type": (body(parameters={"truncate": "yes"}), "true or false"),
    "unknown output": (body(outputs=[{"name": "mood"}]), "['label', 'probability', 'probabilities']"),
    "binary output": (body(outputs=[{"name": "label", "parameters": {"binary_data": True}}]), "it knows none"),
    "id of a wrong type": (body(id=7), "valid string"),
    "half a surrogate pair": (body(["\ud800"]), "half a surrogate pair"),
    "half a surrogate pair as id": (body(id="\ud800"), "half a surrogate pair"),
    "half a surrogate pair as language": (body(languages=["\ud800"]), "speaks"),
    "half a surrogate pair as key": (body(parameters={"\ud800": None}), "parameters"),
}


@pytest.mark.parametrize(("sent", "said"), REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_answered_is_refused_with_what_is_allowed(
    client: httpx.Client, sent: dict[str, Any], said: str
) -> None:
    response = client.post(INFER, content=json.dumps(sent), headers=JSON)
    assert response.status_code == 400, response.text
    assert said in response.json()["error"]


MALFORMED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "empty": (b"", JSON, 400),
    "half": (b'{"inputs": [', JSON, 400),
    "a string": (b'"kilo"', JSON, 400),
    "a list": (b"[]", JSON, 400),
    "not UTF-8": (b'{"inputs": "\xff"}', JSON, 400),
    "not a number": (b'{"inputs": NaN}', JSON, 400),
    "deep": (b"[" * 100_000, JSON, 400),
    "long number": (b'{"inputs": ' + b"1" * 5000 + b"}", JSON, 400),
    "too large": (b" " * (MAX_BODY_BYTES + 1), JSON, 413),
    "not JSON": (b"kilo", {"content-type": "text/plain"}, 415),
    "of no type": (b"{}", {}, 415),
    "binary tensors": (b'"a"', JSON | {"inference-header-content-length": "x"}, 400),
    "CloudEvent": (b"{}", JSON | {"ce-id": "1", "ce-source": "a", "ce-type": "b", "ce-specversion": "7"}, 400),
}


@pytest.mark.parametrize(("content", "headers", "status"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_refused(
    client: httpx.Client, content: bytes, headers: dict[str, str], status: int
) -> None:
    response = client.post(INFER, content=content, headers=headers)
    assert response.status_code == status, response.text
    assert response.json()["error"]


def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(client: httpx.Client) -> None:
    pieces = (b" " * 2**20 for _ in range(64))
    response = client.post(INFER, content=pieces, headers=JSON)
    assert (response.status_code, str(MAX_BODY_BYTES) in response.text) == (413, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/repository/models/topic/unload", 404),
        ("POST", "/v1/models/topic:predict", 404),
        ("POST", "/v2/models/topic/versions/1/infer", 404),
        ("POST", "/v2/models/weather/infer", 404),
        ("GET", "/v2/models/../../etc/passwd", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/models/topic", 405),
    ],
)
def test_there_is_nothing_but_health_metadata_and_questions(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    assert client.request(method, path, json={}).status_code == status
    assert client.get("/v2/models/topic/ready").status_code == 200


def test_a_termination_signal_ends_the_server_in_good_order(bundle: Path) -> None:
    with running(bundle) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert answers(client.post(INFER, json=body()))
        server.process.terminate()
        assert server.process.wait(30) == 0
        with pytest.raises(httpx.TransportError):
            client.get("/v2/health/live")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_an_address_that_cannot_be_listened_on_is_refused(taken: int) -> None:
    for port in (0, 2**16):
        with pytest.raises(ServingError, match="from 1 to 65535"):
            require_port("127.0.0.1", port)
    with pytest.raises(ServingError, match=r"cannot listen on 127\.0\.0\.1"):
        require_port("127.0.0.1", taken)
    # An address that is kept for documentation, so that no machine has it.
    with pytest.raises(ServingError, match=r"cannot listen on 192\.0\.2\.1"):
        require_port("192.0.2.1", 8080)


def test_a_port_in_use_is_said_before_the_bundle_is_opened(taken: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lingraft.serving", "--bundle", str(tmp_path / "none"), "--port", str(taken)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ServingError: cannot listen on 0.0.0.0, port {taken}: Address already in use.")
