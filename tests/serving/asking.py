"""Requests of the Open Inference Protocol, and what is wrong with those that are refused."""

import base64
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
    "empty text": (body(["kilo", ""]), "text 1 is empty"),
    "blank text": (body([" \n\t"]), "text 0 is empty"),
    "text of nothing visible": (body([ZWSP]), "text 0 is empty"),
    "marks of direction alone": (body([RLM, "kilo"]), "text 0 is empty"),
    "NUL": (body(["ki\0lo"]), "NUL at character 2"),
    "longer than a block": (body(["kilo " * 100]), "reads at most 32"),
    "too many characters": (body(["k" * (LIMITS.characters + 1)]), f"at most {LIMITS.characters}"),
    "a word of 10^6 characters": (body(["k" * 10**6]), f"at most {LIMITS.characters}"),
    "too many texts": (body(["kilo"] * (LIMITS.texts + 1)), f"at most {LIMITS.texts}"),
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
    "endless shape": ({"inputs": [tensor("text", ["a"], shape=[10**4000]), LANGUAGE]}, "shape"),
    "no language": ({"inputs": [TEXT]}, "send one 'text' and one 'language'"),
    "another input": ({"inputs": [TEXT, LANGUAGE, tensor("mood", ["x"])]}, "send one 'text' and one 'language'"),
    "text twice": ({"inputs": [TEXT, TEXT, LANGUAGE]}, "send one 'text' and one 'language'"),
    "input parameter": ({"inputs": [TEXT | {"parameters": {"a": 1}}, LANGUAGE]}, "it knows none"),
    "shape of a thousand dimensions": ({"inputs": [tensor("text", ["a"], shape=[1] * 1000), LANGUAGE]}, "at most 16"),
    "many inputs": ({"inputs": [TEXT] * 1000}, "inputs: List should have at most 16"),
    "many outputs": (body(outputs=[{"name": "label"}] * 1000), "outputs: List should have at most 16"),
    "no inputs": ({}, "inputs: Field required"),
    "inputs null": ({"inputs": None}, "valid array"),
    "unknown parameter": (body(parameters={"truncat": True}), "there are ['truncate']"),
    "parameter of a wrong type": (body(parameters={"truncate": "yes"}), "true or false"),
    "unknown output": (body(outputs=[{"name": "mood"}]), "['label', 'probability', 'probabilities'"),
    "binary output": (body(outputs=[{"name": "label", "parameters": {"binary_data": True}}]), "it knows none"),
    "id of a wrong type": (body(id=7), "valid string"),
    "long id": (body(id="7" * 1000), "at most 256"),
}
"""Requests to a model of single texts, by JSON, and a part of the reason."""

_SURROGATE = "half a surrogate pair"
MALFORMED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "empty": (b"", JSON, 400),
    "half": (b'{"inputs": [', JSON, 400),
    "a string": (b'"kilo"', JSON, 400),
    "a list": (b"[]", JSON, 400),
    "not UTF-8": (b'{"inputs": "\xff"}', JSON, 400),
    "UTF-16": ('{"inputs": []}'.encode("utf-16"), JSON, 400),
    "not a number": (b'{"inputs": NaN}', JSON, 400),
    "deep": (b"[" * 100_000, JSON, 400),
    "deep parameters": (b'{"inputs":[],"parameters":{"a":' + b"[" * 9000 + b"]" * 9000 + b"}}", JSON, 400),
    "long number": (b'{"inputs": ' + b"1" * 5000 + b"}", JSON, 400),
    _SURROGATE: (b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}', JSON, 400),
    f"{_SURROGATE} as a key": (b'{"inputs":[],"parameters":{"\\ud800":1}}', JSON, 400),
    "too large": (b" " * (LIMITS.body_bytes + 1), JSON, 413),
    "not JSON": (b"kilo", {"content-type": "text/plain"}, 415),
    "of no type": (b"{}", {}, 415),
    "binary tensors": (b'"a"', JSON | {"inference-header-content-length": "x"}, 400),
    "compressed": (base64.b64decode("H4sIAAAAAAAAA6uuBQBDv6ajAgAAAA=="), JSON | {"content-encoding": "gzip"}, 400),
    "CloudEvent": (b"{}", JSON | {"ce-id": "1", "ce-source": "a", "ce-type": "b", "ce-specversion": "7"}, 400),
}
"""Bodies, headers, and the status of the refusal."""
