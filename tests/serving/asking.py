"""Requests of the Open Inference Protocol, and what is wrong with those that are refused."""

from typing import Any

import httpx

from lingraft.serving.settings import ServingSettings
from tests.serving.shared import SharedServer

LIMITS = ServingSettings()
JSON = {"content-type": "application/json"}
RLM, ZWSP, ZWJ = "\u200f", "\u200b", "\u200d"


def tensor(name: str, data: list[Any], **changed: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(data)], "data": data} | changed


def body(texts: Any = ("kilo",), languages: Any = ("de",), **more: Any) -> dict[str, Any]:
    return {"inputs": [tensor("text", list(texts)), tensor("language", list(languages))]} | more


def inputs(languages: list[str], **texts: list[str]) -> dict[str, Any]:
    return {"inputs": [*(tensor(name, data) for name, data in texts.items()), tensor("language", languages)]}


def outputs_of(response: httpx.Response) -> dict[str, list[Any]]:
    assert response.is_success, response.text
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


def infer(model: str) -> str:
    return f"/v2/models/{model}/infer"


VALID: dict[str, dict[str, Any]] = {
    "topic": inputs(["de", "en"], text=["kilo ba", f"{RLM}de{ZWSP} lo"]),
    "inference": inputs(["tr"], text=["kilo"], text_pair=["ba de"]),
    "reading": inputs(["en"], question=["ba"], context=["ba de kilo lo " * 20]),
    "names": inputs(["de"], text=[f"kilo (ba) na{ZWJ}pe."]) | {"parameters": {"truncate": True}},
    "search": inputs(["de", "tr"], text=["kilo", "ba de"]) | {"parameters": {"input_type": "query"}},
    "fill-mask": inputs(["en"], text=["ba <mask> lo"]) | {"parameters": {"top_k": 3}},
    "embeddings": inputs(["de"], text=["kilo"]) | {"outputs": [{"name": "embedding"}], "id": "7"},
}
"""A good request to each model."""


def still_answers(server: SharedServer) -> None:
    """The server, which nobody starts anew, answers every kind of question after all that."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        for model, question in VALID.items():
            assert client.post(infer(model), json=question).status_code == 200


TEXT, LANGUAGE = body()["inputs"]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown language": (body(languages=["fr"]), "speaks ['de', 'en', 'tr']"),
    "blank text": (body(["kilo", " \n\t"]), "text 1 is empty"),
    "text of nothing visible": (body([ZWSP]), "text 0 is empty"),
    "NUL": (body(["ki\0lo"]), "NUL at character 2"),
    "longer than a block": (body(["kilo " * 100]), "reads at most 32"),
    "too many characters": (body(["k" * (LIMITS.characters + 1)]), f"at most {LIMITS.characters}"),
    "too many texts": (body(["kilo"] * (LIMITS.texts + 1)), f"at most {LIMITS.texts}"),
    "no texts": (body([]), "shape [N]"),
    "two languages for three texts": (body(["a", "b", "c"], ["de", "en"]), "one for each text"),
    "true": (body([True]), "type bool"),
    "object": (body(languages=[{"de": 1}]), "type dict"),
    "half precision": ({"inputs": [tensor("text", ["a"], datatype="FP16"), LANGUAGE]}, "FP16"),
    "wrong shape": ({"inputs": [tensor("text", ["a"], shape=[2]), LANGUAGE]}, "its shape is [2]"),
    "no language": ({"inputs": [TEXT]}, "send one 'text' and one 'language'"),
    "text twice": ({"inputs": [TEXT, TEXT, LANGUAGE]}, "send one 'text' and one 'language'"),
    "no inputs": ({}, "KeyError: 'inputs'"),
    "unknown parameter": (body(parameters={"truncat": True}), "there are ['truncate']"),
    "parameter of a wrong type": (body(parameters={"truncate": "yes"}), "true or false"),
    "unknown output": (body(outputs=[{"name": "mood"}]), "['label', 'probability', 'probabilities'"),
}
"""Requests to a model of single texts, by JSON, and a part of the reason."""

MALFORMED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "half": (b'{"inputs": [', JSON, 400),
    "a list": (b"[]", JSON, 400),
    "not UTF-8": (b'{"inputs": "\xff"}', JSON, 400),
    "not a number": (b'{"inputs": NaN}', JSON, 400),
    "deep": (b"[" * 100_000, JSON, 400),
    "deep parameters": (b'{"inputs":[],"parameters":{"a":' + b"[" * 9000 + b"]" * 9000 + b"}}", JSON, 400),
    "long number": (b'{"inputs": ' + b"1" * 5000 + b"}", JSON, 400),
    "half a surrogate pair as a key": (b'{"inputs":[],"parameters":{"\\ud800":1}}', JSON, 400),
    "many wrong parts": (b'{"inputs":[' + b"{}," * 100_000 + b"{}]}", JSON, 400),
    "too large": (b" " * (LIMITS.body_bytes + 1), JSON, 413),
    "not JSON": (b"kilo", {"content-type": "text/plain"}, 400),
    "binary tensors": (b'"a"', JSON | {"inference-header-content-length": "x"}, 400),
    "CloudEvent": (b"{}", JSON | {"ce-id": "1", "ce-source": "a", "ce-type": "b", "ce-specversion": "7"}, 400),
}
"""Bodies, headers, and the status of the refusal."""
