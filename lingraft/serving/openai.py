"""OpenAI's `POST /v1/embeddings`, which clients of vector indexes speak, on models that give embeddings.

Beside OpenAI's fields there are `language`, `input_type`, `output_dtype` (all three as other servers of this shape name
them) and `truncate`.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pydantic
from numpy.typing import NDArray

from lingraft.errors import RequestError, UnknownModelError
from lingraft.serving.bundle import Bundle
from lingraft.serving.endpoint import Endpoint, InferResponse
from lingraft.serving.handlers.handler import LANGUAGE, TEXT, TRUNCATE
from lingraft.serving.handlers.text_vectors import EMBEDDING, INPUT_TYPE, NO_PREFIX, QUANTISED, output_name
from lingraft.serving.languages import AUTO
from lingraft.serving.request_guard import printable
from lingraft.serving.requests import InferRequest, InputTensor, OutputTensor, refuse_invalid
from lingraft.serving.served_models import ServedModel

MODELS_PATH = "/v1/models"
FLOAT = "float"
_SEPARATOR = ":"


class EmbeddingsRequest(pydantic.BaseModel, strict=True, frozen=True, extra="forbid"):
    """Request for the embeddings of texts."""

    input: Any
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    language: Any = None
    input_type: str | None = None
    output_dtype: str | None = None
    truncate: bool | None = None


class ParsedEmbeddings(NamedTuple):
    """A valid request, as one of the Open Inference Protocol, and how its answer is written."""

    model: str
    request: InferRequest
    asked: EmbeddingsRequest


def with_language(model: str, language: str) -> str:
    """Return a model's name with a language, for clients that send no other fields than OpenAI's."""
    return f"{model}{_SEPARATOR}{language}"


def embedding_models(endpoint: Endpoint) -> dict[str, ServedModel]:
    """Return the models that give embeddings, by name."""
    return {
        name: model for name, model in endpoint.models.items() if EMBEDDING in [each.name for each in model.outputs]
    }


def model_names(endpoint: Endpoint) -> list[str]:
    """Return the names of models that give embeddings, alone and with each of their languages."""
    spoken = {name: sorted(each.bundle.languages) for name, each in embedding_models(endpoint).items()}
    return [*spoken, *(with_language(name, tag) for name, tags in spoken.items() for tag in tags)]


def models_response(endpoint: Endpoint) -> dict[str, Any]:
    """Return the models that give embeddings in OpenAI's shape, for clients that ask for them first."""
    facts = {"object": "model", "created": 0, "owned_by": "lingraft"}
    return {"object": "list", "data": [{"id": name, **facts} for name in model_names(endpoint)]}


def parse_embeddings(endpoint: Endpoint, body: bytes) -> ParsedEmbeddings:
    """Parse a request; texts and languages are validated where those of all requests are.

    Raises:
        RequestError: the body is not JSON in UTF-8, a field is unknown or of a wrong type, no language is named, or
            the model has no vectors of this width or format.
        UnknownModelError: no model that gives embeddings has this name.
    """
    with refuse_invalid():
        asked = EmbeddingsRequest.model_validate_json(body)
    name, separator, suffix = asked.model.partition(_SEPARATOR)
    models = embedding_models(endpoint)
    if name not in models:
        raise UnknownModelError(f"there is no model {name[:80]!a} that gives embeddings; there are {sorted(models)}.")
    bundle = models[name].bundle
    texts = _strings("input", asked.input)
    if separator and asked.language is not None:
        raise RequestError(f"{LANGUAGE} is given, and the model {asked.model[:80]!a} names one, too. Give one of both.")
    hint = _languages_hint(name, sorted(bundle.languages), endpoint.settings.detect)
    languages = _strings(LANGUAGE, suffix if separator else asked.language, hint)
    _require_dimensions(asked.dimensions, bundle.sizes.width)
    output = _output(asked.output_dtype or FLOAT, bundle)
    parameters: dict[str, Any] = {TRUNCATE: bool(asked.truncate)}
    # A model without prefixes puts none before a text, which may be said.
    has_prefixes = INPUT_TYPE in models[name].handler.parameters
    if asked.input_type is not None and (has_prefixes or asked.input_type != NO_PREFIX):
        parameters[INPUT_TYPE] = asked.input_type
    inputs = [
        InputTensor(name=key, datatype="BYTES", shape=[len(values)], data=values)
        for key, values in ((TEXT, texts), (LANGUAGE, languages))
    ]
    request = InferRequest(parameters=parameters, inputs=inputs, outputs=[OutputTensor(name=output)])
    return ParsedEmbeddings(name, request, asked)


def embeddings_response(embeddings: ParsedEmbeddings, response: InferResponse) -> dict[str, Any]:
    """Return the answer in OpenAI's shape; `parameters` are those of the Open Inference Protocol's answer."""
    ((_, vectors_NE),) = response.outputs
    encode = _base64 if embeddings.asked.encoding_format == "base64" else np.ascontiguousarray
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(vector_E)}
            for index, vector_E in enumerate(vectors_NE)
        ],
        "model": embeddings.asked.model,
        "usage": {"prompt_tokens": response.tokens, "total_tokens": response.tokens},
        "parameters": response.parameters,
    }


def error_body(error: RequestError) -> Mapping[str, Any]:
    """Return the body of a refusal in OpenAI's shape."""
    code = "model_not_found" if isinstance(error, UnknownModelError) else None
    message = printable(str(error))
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _base64(vector_E: NDArray[Any]) -> str:
    """Encode a vector, little-endian."""
    return base64.b64encode(vector_E.astype(vector_E.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _strings(field: str, value: Any, hint: str = "") -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence) and value and all(isinstance(each, str) for each in value):
        return list(value)
    if isinstance(value, Sequence) and value and isinstance(value[0], int | list):
        hint = " Token ids are of another tokenizer: LangChain sends none with check_embedding_ctx_length=False."
    raise RequestError(f"{field} must be a string, or a list of one or more strings.{hint}")


def _languages_hint(name: str, languages: list[str], detects: bool) -> str:
    detected = f", or {AUTO!r} to have it detected" if detects else ""
    return (
        f" Name one of {languages} for all texts or one for each{detected}; clients without the field {LANGUAGE!r} "
        f"name one behind the model: {with_language(name, languages[0])!r}."
    )


def _require_dimensions(dimensions: int | None, width: int) -> None:
    if dimensions not in (None, width):
        raise RequestError(
            f"dimensions is {dimensions}, and the model's vectors have {width}. Leave it out; if the model was trained "
            "to be cut (Matryoshka), cut the vectors that you get, and divide them by their length."
        )


def _output(dtype: str, bundle: Bundle) -> str:
    if dtype == FLOAT:
        return EMBEDDING
    if dtype not in QUANTISED:
        raise RequestError(f"output_dtype is {dtype[:40]!a}; it must be one of {[FLOAT, *QUANTISED]}.")
    if dtype.endswith("int8") and not bundle.sizes.has_ranges:
        export = ", or export the bundle with --ranges and vectors of your index" if bundle.retrieval else ""
        raise RequestError(
            f"output_dtype is {dtype!r}, but the bundle has no ranges to quantise between. Ask for {FLOAT!r} or "
            f"'binary'{export}."
        )
    return output_name(dtype)
