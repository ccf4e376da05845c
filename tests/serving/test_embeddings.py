"""Vectors of the endpoint, by the Open Inference Protocol and in OpenAI's shape: PyTorch's."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lingraft.tasks.retrieval import TokenizedTexts, embed
from tests.serving.answers import LANGUAGES, brought, sentences, speaking
from tests.serving.applications import Send, sending
from tests.serving.asking import infer, inputs, outputs_of
from tests.serving.kinds import WIDTH
from tests.tiny import Tiny

PATH = "/v1/embeddings"
PREFIXES = {"default": "pe ", "none": "", "query": "ba de ", "passage": "ki lo ", "document": "ki lo "}
TEXTS = [sentences(language, (4,))[0] for language in LANGUAGES]


@pytest.fixture(scope="module")
def search(bundles: list[Path]) -> Path:
    return next(folder for folder in bundles if folder.name == "retrieval")


@pytest.fixture(scope="module")
def send(search: Path, bundles: list[Path]) -> Iterator[Send]:
    with sending([search, bundles[-1]], detect=False) as sent:
        yield sent


def pytorch_vectors(tiny: Tiny, search: Path, prefix: str) -> np.ndarray:
    """Those of a text in each language."""
    found = []
    for language, text in zip(LANGUAGES, TEXTS, strict=True):
        task = speaking(tiny, search.parent / "tasks" / "retrieval", language)
        found.append(embed(task.net, TokenizedTexts.of([text], prefix, brought(tiny, language).tokenizer, task.shape)))
    return np.concatenate(found)


def openai(send: Send, **fields: Any) -> httpx.Response:
    return send("POST", PATH, json={"model": "search", "input": TEXTS, "language": list(LANGUAGES)} | fields)


def vectors(response: httpx.Response) -> np.ndarray:
    assert response.is_success, response.text
    data = response.json()["data"]
    assert [(each["object"], each["index"]) for each in data] == [("embedding", place) for place in range(len(data))]
    return np.array([each["embedding"] for each in data])


@pytest.mark.parametrize("input_type", PREFIXES)
def test_texts_of_all_languages_in_one_request_have_pytorch_s_vectors(
    send: Send, tiny: Tiny, search: Path, input_type: str
) -> None:
    expected_NE = pytorch_vectors(tiny, search, PREFIXES[input_type])
    request = inputs(list(LANGUAGES), text=TEXTS) | {"parameters": {"input_type": input_type}}
    found = outputs_of(send("POST", infer("search"), json=request))
    assert found.keys() == {"embedding", "language", "language_confidence", "unknown_share"}
    np.testing.assert_allclose(np.reshape(found["embedding"], (3, WIDTH)), expected_NE, rtol=0, atol=1e-5)
    np.testing.assert_allclose(vectors(openai(send, input_type=input_type)), expected_NE, rtol=0, atol=1e-5)
    assert np.abs(expected_NE[0] - expected_NE[1]).max() > 0.01


def test_clients_of_openai_get_floats_or_base64(send: Send) -> None:
    """The client of the package `openai` asks for base64."""
    answer = openai(send, input=TEXTS[1], language="de", dimensions=WIDTH, user="somebody").json()
    assert (answer["object"], answer["model"]) == ("list", "search")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 3
    assert len(answer["parameters"]["fingerprint.de"]) == 64
    floats = answer["data"][0]["embedding"]
    encoded = openai(send, input=TEXTS[1], language="de", encoding_format="base64").json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), np.array(floats, np.float32))


def test_a_language_is_named_behind_the_model_as_well(send: Send) -> None:
    named = openai(send, input=TEXTS[0], language="tr")
    suffixed = send("POST", PATH, json={"model": "search:tr", "input": TEXTS[0]})
    assert suffixed.json()["model"] == "search:tr"
    np.testing.assert_array_equal(vectors(suffixed), vectors(named))
    assert np.abs(vectors(named) - vectors(openai(send, input=TEXTS[0], language="de"))).max() > 0.01


def test_the_primary_embeds_in_this_shape_too(send: Send) -> None:
    found = outputs_of(send("POST", infer("embeddings"), json=inputs(["de"], text=["kilo ba"])))
    response = send("POST", PATH, json={"model": "embeddings", "input": "kilo ba", "language": "de"})
    np.testing.assert_allclose(vectors(response).ravel(), found["embedding"], atol=1e-7)


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown language": ({"language": "fr"}, 400, "speaks ['de', 'en', 'tr']"),
    "no language": (
        {"language": None},
        400,
        "Name one of ['de', 'en', 'tr'] for all texts or one for each, or behind the model: 'search:de'",
    ),
    "two languages for three texts": ({"language": ["de", "en"]}, 400, "one for each text"),
    "language named twice": ({"model": "search:de"}, 400, "'search:de' names one, too. Give one of both."),
    "language of a wrong type": ({"language": 7}, 400, "language must be a string"),
    "unknown model": ({"model": "ada"}, 404, "there are ['embeddings', 'search']"),
    "model that gives labels": ({"model": "topic"}, 404, "no model 'topic' that gives embeddings"),
    "token ids": ({"input": [[1, 2]]}, 400, "check_embedding_ctx_length=False"),
    "number": ({"input": 7}, 400, "input must be a string, or a list of one or more strings."),
    "no texts": ({"input": []}, 400, "one or more strings"),
    "blank": ({"input": [" "], "language": "de"}, 400, "text 0 is empty"),
    "too long": ({"input": "kilo " * 100, "language": "de"}, 400, "the model reads at most 32"),
    "other width": ({"dimensions": 8}, 400, f"dimensions is 8, and the model's vectors have {WIDTH}. Leave it out"),
    "unknown encoding": ({"encoding_format": "hex"}, 400, "'float' or 'base64'"),
    "unknown prefix": ({"input_type": "question"}, 400, "['default', 'none', 'query', 'passage', 'document']"),
    "prefix of a model without": ({"model": "embeddings", "input_type": "query"}, 400, "there are ['normalize', 'trun"),
    "too many": ({"input": ["kilo"] * 2049, "language": "de"}, 400, "at most 2048 at once (server: --texts)"),
    "beginning left out": ({"truncate": "START"}, 400, "'NONE' or 'END'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do_in_openai_s_shape(send: Send, name: str) -> None:
    fields, status, reason = REFUSED[name]
    response = openai(send, **fields)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert reason in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == ("model_not_found" if status == 404 else None)


def test_optional_fields_may_be_null(send: Send) -> None:
    names = ("encoding_format", "dimensions", "user", "input_type", "truncate")
    np.testing.assert_array_equal(vectors(openai(send, **dict.fromkeys(names))), vectors(openai(send)))


def test_models_that_embed_are_listed_as_openai_lists_them(send: Send) -> None:
    listed = send("GET", "/v1/models").json()
    assert listed["object"] == "list"
    names = [each["id"] for each in listed["data"]]
    assert names == ["search", "embeddings", *(f"{name}:{tag}" for name in names[:2] for tag in ("de", "en", "tr"))]
    assert openai(send, model=names[-1], language=None).is_success
    assert send("GET", f"/v1/models/{names[-1]}").json() == listed["data"][-1]


def test_a_long_text_is_cut_where_that_is_asked_for(send: Send) -> None:
    for truncate in (True, "END"):
        response = openai(send, input="kilo " * 100, language="de", truncate=truncate)
        assert response.json()["usage"]["prompt_tokens"] == 32


def test_fields_of_other_servers_are_ignored(send: Send) -> None:
    more = {"user": "u1", "metadata": {"trace": "1"}, "truncate_prompt_tokens": -1, "truncate": "NONE"}
    np.testing.assert_array_equal(vectors(openai(send, **more)), vectors(openai(send)))


def test_a_large_batch_is_split_and_comes_back_in_order(send: Send) -> None:
    texts = [f"kilo {'ba ' * (number % 7)}" for number in range(200)]
    found = vectors(openai(send, input=texts, language="de"))
    for number in (0, 63, 64, 199):
        np.testing.assert_allclose(
            found[number], vectors(openai(send, input=texts[number], language="de"))[0], atol=1e-6
        )


def test_every_refusal_under_v1_has_openai_s_shape(search: Path) -> None:
    with sending([search], token="tell-me-the-answers", body_bytes=100, detect=False) as sent:
        key = {"headers": {"authorization": "Bearer tell-me-the-answers"}}
        refusals = {
            401: sent("POST", PATH, json={}),
            413: sent("POST", PATH, content=b"a" * 101, **key),
            400: sent("POST", PATH, content=b'{"model": "search:de", "input": "\\ud800"}', **key),
            404: sent("GET", "/v1/models/none", **key),
            405: sent("DELETE", PATH, **key),
        }
        assert sent("GET", "/v1/embedding", **key).status_code == 404
    for status, response in refusals.items():
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
