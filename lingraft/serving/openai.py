"""OpenAI's `/v1/embeddings`, which clients of vector indexes speak, and `/v1/models`, of models that give embeddings.

Beside OpenAI's fields there are `language`, `input_type` and `truncate`; others are ignored.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import orjson
import pydantic
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from lingraft.errors import RequestError, UnknownModelError
from lingraft.serving.handlers.handler import LANGUAGE, TEXT, TRUNCATE
from lingraft.serving.handlers.rows import EMBEDDING, INPUT_TYPE, NO_PREFIX
from lingraft.serving.languages import AUTO
from lingraft.serving.model import EndpointModel
from lingraft.serving.requests import validate
from lingraft.serving.settings import ServingSettings

Models = Mapping[str, EndpointModel]


class EmbeddingsRequest(pydantic.BaseModel, strict=True, frozen=True):
    """Request for the embeddings of texts."""

    input: Any
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    language: Any = None
    input_type: str | None = None
    truncate: bool | Literal["NONE", "END"] | None = None
    """Whether only the beginning of a long text is read, also as other servers of this shape say it."""


def router(models: Callable[[], Models], settings: ServingSettings) -> APIRouter:
    """Return the routes, on the models that are served at the moment."""
    routes = APIRouter(prefix="/v1", tags=["OpenAI"])

    @routes.get("/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [_entry(name) for name in _names(models())]}

    @routes.get("/models/{model}")
    async def get_model(model: str) -> dict[str, Any]:
        if model not in _names(models()):
            raise UnknownModelError(f"there is no model {model[:80]!a}; there are {_names(models())}.")
        return _entry(model)

    @routes.post("/embeddings")
    async def embeddings(asked: EmbeddingsRequest) -> Response:
        return await _embed(asked, models(), settings)

    return routes


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "lingraft"}


def _names(models: Models) -> list[str]:
    """Return the names of models that give embeddings, alone and with each of their languages."""
    spoken = {name: sorted(model.served.bundle.languages) for name, model in _embedding_models(models).items()}
    return [*spoken, *(f"{name}:{tag}" for name, tags in spoken.items() for tag in tags)]


def _embedding_models(models: Models) -> dict[str, EndpointModel]:
    return {name: each for name, each in models.items() if EMBEDDING in [spec.name for spec in each.served.outputs]}


async def _embed(asked: EmbeddingsRequest, models: Models, settings: ServingSettings) -> Response:
    name, separator, suffix = asked.model.partition(":")
    known = _embedding_models(models)
    if name not in known:
        raise UnknownModelError(f"there is no model {name[:80]!a} that gives embeddings; there are {sorted(known)}.")
    served = known[name].served
    width, languages = served.bundle.sizes.width, sorted(served.bundle.languages)
    if separator and asked.language is not None:
        raise RequestError(f"{LANGUAGE} is given, and the model {asked.model[:80]!a} names one, too. Give one of both.")
    if asked.dimensions not in (None, width):
        raise RequestError(
            f"dimensions is {asked.dimensions}, and the model's vectors have {width}. Leave it out; if the model was "
            "trained to be cut (Matryoshka), cut the vectors that you get, and divide them by their length."
        )
    parameters: dict[str, Any] = {TRUNCATE: asked.truncate in (True, "END")}
    # A model without prefixes puts none before a text, which may be said.
    if asked.input_type and (asked.input_type != NO_PREFIX or INPUT_TYPE in served.handler.parameters):
        parameters[INPUT_TYPE] = asked.input_type
    known_languages = [*languages, AUTO] if settings.detect else languages
    hint = (
        f" Name one of {known_languages} for all texts or one for each, or behind the model: '{name}:{languages[0]}'."
    )
    request = validate(
        texts={TEXT: _strings("input", asked.input)},
        languages=_strings(LANGUAGE, suffix if separator else asked.language, hint),
        parameters=parameters,
        outputs=[EMBEDDING],
        model=served,
        settings=settings,
    )
    answer = await known[name].answer(request)
    ((_, vectors_NE),) = answer.outputs
    as_text = asked.encoding_format == "base64"
    body = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": place, "embedding": _base64(vector_E) if as_text else vector_E}
            for place, vector_E in enumerate(vectors_NE)
        ],
        "model": asked.model,
        "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
        "parameters": answer.parameters,
    }
    return Response(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _base64(vector_E: NDArray[np.float32]) -> str:
    return base64.b64encode(vector_E.astype("<f4").tobytes()).decode("ascii")


def _strings(field: str, value: Any, hint: str = "") -> list[str]:
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and values and all(isinstance(each, str) for each in values):
        return values
    if isinstance(values, list) and values and isinstance(values[0], int | list):
        hint = " Token ids are of another tokenizer: LangChain sends none with check_embedding_ctx_length=False."
    raise RequestError(f"{field} must be a string, or a list of one or more strings.{hint}")
