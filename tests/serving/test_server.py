"""The real server in a process of its own, over HTTP: answers held to PyTorch's, refusals, its log and its end."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.language_part import language_fingerprint
from lingraft.errors import ServingError
from lingraft.serving.__main__ import main
from lingraft.serving.command import require_port
from pipelines.endpoint import free_ports, run_server
from tests.serving.answers import LANGUAGES, pytorch_logits, rows_of, sentences
from tests.serving.asking import JSON, LIMITS, MALFORMED, REFUSED, VALID, body, outputs_of, still_answers
from tests.serving.shared import SharedServer
from tests.tiny import Tiny

INFER = "/v2/models/topic/infer"


@pytest.fixture(scope="module")
def client(open_server: SharedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=open_server.url, timeout=60, trust_env=False) as client:
        yield client


def test_health_metrics_and_a_page_are_told(client: httpx.Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/topic/ready", "/metrics", "/", "/ui"):
        assert client.get(path).status_code == 200
    described = client.get("/openapi.json").json()["paths"]
    assert {"/v2/models/{model_name}/infer", "/v1/embeddings", "/v2/repository/models/{name}/load"} <= described.keys()


def test_metadata_tells_inputs_outputs_languages_labels_and_limits(client: httpx.Client, bundle: Path) -> None:
    assert client.get("/v2/models").json() == {"models": list(VALID)}
    told = client.get("/v2/models/topic").json()
    assert {entry["name"]: entry["shape"] for entry in told["inputs"]} == {"text": [-1], "language": [-1]}
    assert {entry["name"]: (entry["datatype"], entry["shape"]) for entry in told["outputs"]} == {
        "label": ("BYTES", [-1]),
        "probability": ("FP32", [-1]),
        "probabilities": ("FP32", [-1, 3]),
        "language": ("BYTES", [-1]),
        "language_confidence": ("FP32", [-1]),
        "unknown_share": ("FP32", [-1]),
    }
    assert told["parameters"]["languages"] == sorted(LANGUAGES)
    assert told["parameters"]["labels"] == ["garden", "harbour", "kitchen"]
    manifest = Artifact.load(bundle, Kind.BUNDLE).manifest
    assert told["parameters"]["fingerprint"] == manifest.fingerprint
    assert told["parameters"]["fingerprints"] == {tag: language_fingerprint(manifest, tag) for tag in LANGUAGES}
    assert told["parameters"]["max_tokens"] == 32
    assert told["parameters"]["source_language"] == "en"
    assert told["parameters"]["examples"] == {"en": {"text": "ba de"}, "de": {"text": "ki lo"}}


@pytest.mark.parametrize("language", LANGUAGES[:2])
def test_answers_are_pytorch_s_for_the_language(client: httpx.Client, tiny: Tiny, language: str) -> None:
    texts = sentences(language)
    expected_NC = pytorch_logits(tiny, language, rows_of(tiny, language, texts)).softmax(1)
    found = outputs_of(client.post(INFER, json=body(texts, [language])))
    actual_NC = torch.tensor(found["probabilities"]).view(len(texts), -1)
    torch.testing.assert_close(actual_NC, expected_NC, rtol=0, atol=1e-5)
    assert found["probability"] == pytest.approx(actual_NC.amax(1).tolist())
    names = client.get("/v2/models/topic").json()["parameters"]["labels"]
    assert found["label"] == [names[best] for best in actual_NC.argmax(1)]
    assert found["language"] == [language] * len(texts)


def test_an_answer_has_the_outputs_asked_for_the_id_and_the_fingerprint_of_each_language(client: httpx.Client) -> None:
    known = client.get("/v2/models/topic").json()["parameters"]["fingerprints"]
    assert len({*known.values()}) == len(LANGUAGES)
    sent = body(["kilo", "nape", "balo"], ["tr", "de", "tr"], outputs=[{"name": "label"}], id="question 7")
    response = client.post(INFER, json=sent)
    assert set(outputs_of(response)) == {"label"}
    told = response.json()
    assert told["id"] == "question 7"
    assert told["parameters"] == {"fingerprint.de": known["de"], "fingerprint.tr": known["tr"]}


def test_languages_mixed_in_one_request_are_answered_as_alone_and_in_order(client: httpx.Client) -> None:
    languages = [LANGUAGES[place % 3] for place in range(100)]
    texts = [sentences(language)[place % 2] for place, language in enumerate(languages)]
    mixed = outputs_of(client.post(INFER, json=body(texts, languages)))["probability"]
    alone = {
        pair: outputs_of(client.post(INFER, json=body([pair[1]], [pair[0]])))["probability"][0]
        for pair in set(zip(languages, texts, strict=True))
    }
    assert len({round(value, 4) for value in alone.values()}) > 3
    assert mixed == pytest.approx([alone[pair] for pair in zip(languages, texts, strict=True)], abs=1e-5)


@pytest.mark.parametrize(("sent", "said"), REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_answered_is_refused_with_what_is_allowed(
    client: httpx.Client, sent: dict[str, Any], said: str
) -> None:
    response = client.post(INFER, content=json.dumps(sent), headers=JSON)
    assert response.status_code == 400, response.text
    assert said in response.json()["error"]


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
    assert (response.status_code, str(LIMITS.body_bytes) in response.text) == (413, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/repository/models/topic/unload", 400),
        ("POST", "/v2/models/weather/infer", 400),
        ("GET", "/v2/models/weather", 404),
        ("POST", "/v2/models/topic/versions/1/infer", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("POST", "/v1/models/topic:predict", 400),
        ("GET", INFER, 405),
    ],
)
def test_there_is_nothing_but_health_metadata_and_questions(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path, json={})
    assert (response.status_code, "error" in response.json()) == (status, True)
    assert client.get("/v2/models/topic/ready").status_code == 200


def test_a_termination_signal_ends_the_server_and_its_log_has_no_word_of_what_was_asked(bundle: Path) -> None:
    secret = "pelonaze\u202e\n"
    with run_server([bundle]) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert outputs_of(client.post(INFER, json=body([secret])))
        assert client.post(INFER, json=body([secret], [secret], id=secret)).status_code == 400
        server.process.terminate()
        assert server.process.wait(30) == 0
        with pytest.raises(httpx.TransportError):
            client.get("/v2/health/live")
        server.log.seek(0)
        log = server.log.read()
    assert INFER.encode() in log
    assert b"pelonaze" not in log


def test_a_server_needs_neither_pytorch_nor_what_trains_and_tracks(open_server: SharedServer) -> None:
    still_answers(open_server)
    lines = open_server.log.read_text().splitlines()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}
    assert {"kserve", "onnxruntime", "tokenizers"} <= imported
    assert not imported & {"torch", "mlflow", "transformers", "kfp", "datasets", "matplotlib", "optuna"}


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_an_address_that_cannot_be_listened_on_is_refused(taken: int) -> None:
    with pytest.raises(ServingError, match=r"cannot listen on 127\.0\.0\.1"):
        require_port("127.0.0.1", taken)
    # An address that is kept for documentation, so that no machine has it.
    with pytest.raises(ServingError, match=r"cannot listen on 192\.0\.2\.1"):
        require_port("192.0.2.1", 8080)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--grpc-port", "{taken}"], "ServingError: cannot listen on 0.0.0.0, port {taken}: Address already in use."),
        (["--batch-texts", "none"], "ServingError: --batch-texts: Input should be a valid integer"),
        (["--port", "70000"], "ServingError: --port: Input should be less than 65536"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said_before_a_bundle_is_opened(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], said: str
) -> None:
    given = [flag.format(taken=taken) for flag in flags]
    monkeypatch.setattr(sys, "argv", ["serve", str(tmp_path / "none"), *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).startswith(said.format(taken=taken))


def test_without_the_server_s_packages_the_extra_that_brings_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setitem(sys.modules, "kserve", None)
    monkeypatch.setattr(sys, "argv", ["serve", str(tmp_path / "none"), f"--port={port}", "--grpc-port=0"])
    with pytest.raises(SystemExit, match=r"kserve is not installed.*lingraft\[serving\]"):
        main()
