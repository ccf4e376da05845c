"""Vectors of the endpoint, by the Open Inference Protocol and in OpenAI's shape: PyTorch's, and quantised alike."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from sentence_transformers.util import quantize_embeddings

from lingraft.serving.bundle import Bundle
from lingraft.tasks.retrieval import TokenizedTexts, embed
from tests.serving.answers import LANGUAGES, brought, sentences, speaking
from tests.serving.applications import Send, sending
from tests.serving.asking import infer, inputs, outputs_of
from tests.serving.kinds import WIDTH
from tests.serving.rpc import asked, stub
from tests.serving.shared import SharedServer
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
    assert found.keys() == {"embedding", "language", "language_confidence", "unknown_share", "detected_language"}
    np.testing.assert_allclose(np.reshape(found["embedding"], (3, WIDTH)), expected_NE, rtol=0, atol=1e-5)
    np.testing.assert_allclose(vectors(openai(send, input_type=input_type)), expected_NE, rtol=0, atol=1e-5)
    assert np.abs(expected_NE[0] - expected_NE[1]).max() > 0.01


@pytest.mark.parametrize("dtype", ["int8", "uint8", "binary", "ubinary"])
def test_quantised_vectors_are_those_of_sentence_transformers(send: Send, search: Path, dtype: Any) -> None:
    vectors_NE = vectors(openai(send)).astype(np.float32)
    ranges_2E = Bundle.load(search).ranges_2E
    assert ranges_2E is not None
    assert (ranges_2E[:, 3] == 0.25).all()
    expected = quantize_embeddings(vectors_NE, dtype, ranges=ranges_2E)
    np.testing.assert_array_equal(vectors(openai(send, output_dtype=dtype)), expected)
    name = f"embedding_{dtype}"
    request = inputs(list(LANGUAGES), text=TEXTS) | {"outputs": [{"name": name}]}
    (output,) = send("POST", infer("search"), json=request).json()["outputs"]
    assert (output["name"], output["shape"], output["data"]) == (name, [*expected.shape], expected.ravel().tolist())
    told = {each["name"]: each for each in send("GET", "/v2/models/search").json()["outputs"]}
    assert told[name] == {"name": name, "datatype": output["datatype"], "shape": [-1, expected.shape[1]]}
    raw = [each["embedding"] for each in openai(send, output_dtype=dtype, encoding_format="base64").json()["data"]]
    decoded = [np.frombuffer(base64.b64decode(each), expected.dtype) for each in raw]
    np.testing.assert_array_equal(np.stack(decoded), expected)


def test_grpc_gives_quantised_vectors_too(open_server: SharedServer) -> None:
    request = asked("search", text=["kilo ba"], language=["de"])
    for name in ("embedding", "embedding_int8", "embedding_ubinary"):
        request.outputs.add(name=name)
    request.parameters["input_type"].CopyFrom(pb.InferParameter(string_param="query"))
    with stub(open_server) as service:
        plain, int8, ubinary = service.ModelInfer(request).outputs
    assert (int8.datatype, ubinary.datatype) == ("INT8", "UINT8")
    assert len(int8.contents.int_contents) == WIDTH
    bits = np.packbits(np.array(plain.contents.fp32_contents) > 0)
    assert list(ubinary.contents.uint_contents) == bits.tolist()


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
    np.testing.assert_array_equal(vectors(response).ravel(), found["embedding"])


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown language": ({"language": "fr"}, 400, "speaks ['de', 'en', 'tr']"),
    "no language": ({"language": None}, 400, "Name one of ['de', 'en', 'tr'] for all texts or one for each; clients"),
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
    "unknown format": ({"output_dtype": "int4"}, 400, "['float', 'int8', 'uint8', 'binary', 'ubinary']"),
    "unknown encoding": ({"encoding_format": "hex"}, 400, "'float' or 'base64'"),
    "unknown prefix": ({"input_type": "question"}, 400, "['default', 'none', 'query', 'passage', 'document']"),
    "unknown field": ({"languages": "de"}, 400, "languages: Extra inputs are not permitted"),
    "prefix of a model without": ({"model": "embeddings", "input_type": "query"}, 400, "there are ['normalize', 'trun"),
    "8 bits of a primary": ({"model": "embeddings", "output_dtype": "int8"}, 400, "Ask for 'float' or 'binary'."),
    "too many": ({"input": ["kilo"] * 65, "language": "de"}, 400, "at most 64 at once (server: --texts)"),
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
    names = ("encoding_format", "dimensions", "user", "input_type", "output_dtype", "truncate")
    np.testing.assert_array_equal(vectors(openai(send, **dict.fromkeys(names))), vectors(openai(send)))


def test_models_that_embed_are_listed_as_openai_lists_them(send: Send) -> None:
    listed = send("GET", "/v1/models").json()
    assert listed["object"] == "list"
    names = [each["id"] for each in listed["data"]]
    assert names == ["search", "embeddings", *(f"{name}:{tag}" for name in names[:2] for tag in ("de", "en", "tr"))]
    assert openai(send, model=names[-1], language=None).is_success


def test_prefixes_are_offered_only_where_a_model_has_them(send: Send, bundles: list[Path]) -> None:
    def offered(sent: Send) -> Any:
        path = sent("GET", "/openapi.json").json()["paths"][PATH]
        return path["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["input_type"]

    assert offered(send)["description"] == "Other values than none are for search."
    with sending([bundles[-1]], detect=False) as sent:
        assert offered(sent)["enum"] == ["none", None]


def test_a_long_text_is_cut_where_that_is_asked_for(send: Send) -> None:
    response = openai(send, input="kilo " * 100, language="de", truncate=True)
    assert response.json()["usage"]["prompt_tokens"] == 32


def test_without_a_model_that_embeds_there_is_no_such_path(bundle: Path) -> None:
    with sending([bundle], detect=False) as sent:
        assert sent("POST", PATH, json={"model": "topic", "input": "kilo"}).status_code == 404
        assert PATH not in sent("GET", "/openapi.json").json()["paths"]
