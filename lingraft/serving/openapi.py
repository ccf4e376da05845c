"""OpenAPI description of the endpoint, generated from the models that it serves at the moment."""

from typing import Any

from lingraft._version import __version__
from lingraft.serving.detection import AUTO
from lingraft.serving.endpoint import Endpoint
from lingraft.serving.mismatch import WARNING
from lingraft.serving.models import ServedModel
from lingraft.serving.request_guard import OPEN_PATHS
from lingraft.serving.requests import MAX_PARTS
from lingraft.serving.tasks.handler import LANGUAGE, RequestParameter

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
UNAUTHORIZED = "401"
_REFUSALS = {
    "400": "The request is not one that the model can answer; `error` says what is allowed.",
    UNAUTHORIZED: "The token is missing or wrong.",
    "408": "The request was not sent in time.",
    "413": "The request is too large.",
    "415": "The request is not JSON, or encoded by something other than gzip.",
    "429": "There is too much to do; the header Retry-After says when to ask again.",
    "503": "The server is about to end.",
}
_REFUSED_INPUT = sorted(_REFUSALS.keys() - {UNAUTHORIZED})
_JSON_TYPES = {"BYTES": "string", "FP32": "number", "INT32": "integer", "BOOL": "boolean"}


def openapi_description(endpoint: Endpoint, locked: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of an endpoint.

    Args:
        endpoint: endpoint to describe.
        locked: whether requests must carry a token.
    """
    paths: dict[str, Any] = {
        "/": {"get": _get("Whether the process lives.", _record({"status": {"const": "alive"}}))},
        "/v2": {"get": _get("What this server is.", _record({key: {} for key in ("name", "version", "extensions")}))},
        "/v2/health/live": {"get": _get("Whether the process lives.", _record({"live": {"type": "boolean"}}))},
        "/v2/health/ready": {"get": _readiness("Whether requests are taken on.")},
        "/v2/models": {"get": _get("Names of the models.", _record({"models": _list({"type": "string"})}))},
    }
    for name, model in endpoint.models.items():
        path = f"/v2/models/{name}"
        bundle = endpoint.served[model.bundle]
        schema = _record({key: {} for key in ("name", "platform", "inputs", "outputs", "parameters")})
        paths[path] = {"get": _get(f"Inputs, outputs, languages, labels and limits of {name}.", schema)}
        paths[f"{path}/ready"] = {"get": _readiness(f"Whether {name} takes requests on.")}
        paths[f"{path}/infer"] = {"post": _infer(endpoint, name, model)}
        paths[f"{path}/infer"]["post"]["description"] = (
            f"Languages: {', '.join(sorted(bundle.languages))}. Labels: {', '.join(bundle.labels) or 'none'}."
        )
    for path, methods in paths.items():
        if locked and path not in OPEN_PATHS:
            for operation in methods.values():
                operation["responses"] = dict(sorted((operation["responses"] | _refusals(UNAUTHORIZED)).items()))
                operation["security"] = _SECURITY
    return {
        "openapi": "3.1.0",
        "info": {"title": "lingraft: one body, every language", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _record({"error": {"type": "string"}})},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _infer(endpoint: Endpoint, name: str, model: ServedModel) -> dict[str, Any]:
    settings = endpoint.settings
    outputs = model.outputs(endpoint.served[model.bundle])
    text = {"type": "string", "minLength": 1, "maxLength": settings.characters}
    texts = [_input(each, settings.texts, text) for each in model.handler.inputs]
    spoken = [*sorted(endpoint.served[model.bundle].languages), *([AUTO] if settings.detect else [])]
    languages = _input(LANGUAGE, settings.texts, {"enum": spoken})
    names = [*model.handler.inputs, LANGUAGE]
    wanted = {"name": {"enum": [each.name for each in outputs]}, "parameters": {"type": ["object", "null"]}}
    asked = _record(
        {
            "inputs": {
                "type": "array",
                "items": {"anyOf": [*texts, languages]},
                "minItems": len(names),
                "maxItems": len(names),
            }
        },
        id={"type": ["string", "null"], "maxLength": 256},
        parameters={
            "type": ["object", "null"],
            "properties": {key: _parameter(each) for key, each in model.handler.parameters.items()},
            "additionalProperties": False,
        },
        outputs={
            "type": ["array", "null"],
            "items": {"type": "object", "properties": wanted, "required": ["name"]},
            "maxItems": MAX_PARTS,
        },
    )
    answers = [
        _record(
            {
                "name": {"const": each.name},
                "datatype": {"const": each.datatype},
                "shape": _list({"type": "integer"}),
                "data": _list({"type": _JSON_TYPES[each.datatype]}),
            }
        )
        | {"description": each.meaning}
        for each in outputs
    ]
    schema = {
        "type": "object",
        "properties": {WARNING: {"type": "string", "description": "Which texts do not look like their language."}},
        "additionalProperties": {"type": "string"},
        "description": "fingerprint.LANGUAGE: SHA-256 of all that decides an answer in a language of the request.",
    }
    answered = _record(
        {
            "model_name": {"const": name},
            "id": {"type": "string"},
            "parameters": schema,
            "outputs": _list({"anyOf": answers}),
        }
    )
    return {
        "summary": f"Ask {name}: {', '.join(names)} in, {', '.join(each.name for each in outputs)} out.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": asked, "example": _example(model)}},
        },
        "responses": {"200": _json("The answers.", answered)} | _refusals(*_REFUSED_INPUT),
    }


def _example(model: ServedModel) -> dict[str, Any]:
    given = dict.fromkeys(model.handler.inputs, "...") | {LANGUAGE: "auto"}
    return {
        "inputs": [{"name": key, "datatype": "BYTES", "shape": [1], "data": [value]} for key, value in given.items()]
    }


def _input(name: str, texts: int, item: dict[str, Any]) -> dict[str, Any]:
    return _record(
        {
            "name": {"const": name},
            "datatype": {"const": "BYTES"},
            "shape": _list({"type": "integer", "minimum": 1, "maximum": texts}) | {"minItems": 1, "maxItems": 1},
            "data": _list(item) | {"minItems": 1, "maxItems": texts},
        },
        parameters={"type": ["object", "null"], "maxProperties": 0},
    )


def _parameter(known: RequestParameter) -> dict[str, Any]:
    schema = {"default": known.default, "description": known.meaning}
    if isinstance(known.default, bool):
        return schema | {"type": "boolean"}
    return schema | {"type": "integer", "minimum": known.minimum, "maximum": known.maximum}


def _get(summary: str, answered: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "responses": {"200": _json("The answer.", answered)},
    }


def _readiness(summary: str) -> dict[str, Any]:
    schema = _record({"ready": {"type": "boolean"}})
    return {
        "summary": summary,
        "responses": {"200": _json("Ready.", schema), "503": _json("Not ready.", schema)},
    }


def _refusals(*statuses: str) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/Error"}
    return {status: _json(_REFUSALS[status], error) for status in statuses}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "properties": required | optional, "required": list(required)}
