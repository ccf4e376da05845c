"""OpenAPI description of the endpoint, generated from the models that it serves at the moment, and a page of it.

FastAPI would describe the languages that were served at the start, and its pages load their scripts from other servers.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from lingraft._version import __version__
from lingraft.serving import openai
from lingraft.serving.endpoint import WARNING, Endpoint
from lingraft.serving.handlers.handler import LANGUAGE, RequestParameter
from lingraft.serving.handlers.text_vectors import INPUT_TYPE, NO_PREFIX, OPENAI_PATH, QUANTISED, RETRIEVAL
from lingraft.serving.languages import AUTO
from lingraft.serving.request_guard import OPEN_PATHS
from lingraft.serving.requests import MAX_ID, MAX_PARTS
from lingraft.serving.served_models import ServedModel

_Schema = dict[str, Any]
_UNAUTHORIZED = {"401": "The token is missing or wrong."}
_REFUSALS = {
    "400": "The request is not one that the model can answer; `error` says what is allowed.",
    "408": "The request was not sent in time.",
    "413": "The request is too large.",
    "415": "The request is not JSON, or encoded by something other than gzip.",
    "429": "There is too much to do; the header Retry-After says when to ask again.",
    "503": "The server is about to end.",
}
_JSON_TYPES = {
    "BYTES": "string",
    "FP32": "number",
    "INT32": "integer",
    "INT8": "integer",
    "UINT8": "integer",
    "BOOL": "boolean",
}
_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{overflow-x:auto;padding:.5rem;border:1px solid}code{font-size:.9em}th,td{text-align:left;padding-right:1rem}"
)


def openapi_description(endpoint: Endpoint, locked: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of an endpoint; requests must carry a token if it is locked."""
    paths: dict[str, Any] = {
        "/": _get("Whether the process lives.", {"status": {"const": "alive"}}),
        "/v2": _get("What this server is.", {"name": {}, "version": {}, "extensions": {}}),
        "/v2/health/live": _get("Whether the process lives.", {"live": {"type": "boolean"}}),
        "/v2/health/ready": _readiness("Whether requests are taken on."),
        "/v2/models": _get("Names of the models.", {"models": _list({"type": "string"})}),
    }
    for name, model in endpoint.models.items():
        path = f"/v2/models/{name}"
        paths[path] = _get(
            f"Inputs, outputs, languages, labels and limits of {name}.",
            {key: {} for key in ("name", "platform", "inputs", "outputs", "parameters")},
        )
        paths[f"{path}/ready"] = _readiness(f"Whether {name} takes requests on.")
        paths[f"{path}/infer"] = {"post": _infer(endpoint, name, model)}
    if models := openai.embedding_models(endpoint):
        paths[OPENAI_PATH] = {"post": _embeddings(endpoint, models)}
        entry = _object({"id": {"type": "string"}, "object": {"const": "model"}, "created": {}, "owned_by": {}})
        listed = {"object": {"const": "list"}, "data": _list(entry)}
        paths[openai.MODELS_PATH] = _get("Names of the models that give embeddings, in OpenAI's shape.", listed)
    for path, methods in paths.items():
        if locked and path not in OPEN_PATHS:
            for operation in methods.values():
                operation["responses"] = dict(sorted((operation["responses"] | _errors(_UNAUTHORIZED)).items()))
                operation["security"] = [{"bearer": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "lingraft: one body, every language", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": _object({"error": {"type": "string"}}),
                # What the guard refuses, such as too large a body, has a string on every path.
                "OpenAIError": _object({"error": {"type": ["object", "string"]}}),
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _infer(endpoint: Endpoint, name: str, model: ServedModel) -> dict[str, Any]:
    bundle = model.bundle
    outputs = [each.name for each in model.outputs]
    example = dict.fromkeys(model.handler.inputs, "...") | {LANGUAGE: AUTO}
    languages = ", ".join(sorted(bundle.languages))
    body = {
        "schema": _request_schema(endpoint, model),
        "example": {
            "inputs": [
                {"name": key, "datatype": "BYTES", "shape": [1], "data": [value]} for key, value in example.items()
            ]
        },
    }
    return {
        "summary": f"Ask {name}: {', '.join(model.inputs)} in, {', '.join(outputs)} out.",
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {"200": _json("The answers.", _response_schema(name, model))} | _errors(_REFUSALS),
        "description": f"Languages: {languages}. Labels: {', '.join(bundle.labels) or 'none'}.",
    }


def _embeddings(endpoint: Endpoint, models: Mapping[str, ServedModel]) -> dict[str, Any]:
    """Describe OpenAI's request for embeddings."""
    settings = endpoint.settings
    spoken = {name: sorted(model.bundle.languages) for name, model in models.items()}
    names = openai.model_names(endpoint)
    prefixed = [name for name, model in models.items() if INPUT_TYPE in model.handler.parameters]
    text = {"type": "string", "minLength": 1, "maxLength": settings.characters}
    language = {
        "enum": [*sorted({tag for tags in spoken.values() for tag in tags}), *([AUTO] if settings.detect else [])]
    }
    schema = _object(
        {"input": _one_or_list(text, settings.texts), "model": {"enum": names}},
        language={"anyOf": [{"type": "null"}, *_one_or_list(language, settings.texts)["anyOf"]]},
        input_type={
            "enum": [*(RETRIEVAL.parameters[INPUT_TYPE].choices if prefixed else [NO_PREFIX]), None],
            "description": f"Other values than {NO_PREFIX} are for {', '.join(prefixed) or 'no model here'}.",
        },
        encoding_format={"enum": ["float", "base64", None]},
        output_dtype={"enum": [openai.FLOAT, *QUANTISED, None]},
        dimensions={"type": ["integer", "null"], "minimum": 1},
        truncate={"type": ["boolean", "null"]},
        user={"type": ["string", "null"]},
    )
    vector = {"anyOf": [_list({"type": "number"}), {"type": "string", "contentEncoding": "base64"}]}
    item = _object({"object": {"const": "embedding"}, "index": {"type": "integer"}, "embedding": vector})
    count = {"type": "integer"}
    answer = _object(
        {
            "object": {"const": "list"},
            "data": _list(item),
            "model": {"type": "string"},
            "usage": _object({"prompt_tokens": count, "total_tokens": count}),
            "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    example = {"input": ["..."], "model": names[0], LANGUAGE: next(iter(spoken.values()))[0]}
    refusals = _REFUSALS | {"404": "There is no such model that gives embeddings."}
    return {
        "summary": "Embed texts, in the shape of OpenAI's API.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema | {"additionalProperties": False}, "example": example}},
        },
        "responses": {"200": _json("The embeddings.", answer)}
        | {
            status: _json(meaning, {"$ref": "#/components/schemas/OpenAIError"}) for status, meaning in refusals.items()
        },
        "description": "; ".join(f"{name}: {', '.join(tags)}" for name, tags in spoken.items()),
    }


def _one_or_list(item: _Schema, most: int) -> _Schema:
    return {"anyOf": [item, _list(item, minItems=1, maxItems=most)]}


def _request_schema(endpoint: Endpoint, model: ServedModel) -> _Schema:
    settings = endpoint.settings
    bundle = model.bundle
    text = {"type": "string", "minLength": 1, "maxLength": settings.characters}
    language = {"enum": [*sorted(bundle.languages), *([AUTO] if settings.detect else [])]}
    inputs = [_input(each, settings.texts, language if each == LANGUAGE else text) for each in model.inputs]
    output = {
        "type": "object",
        "properties": {
            "name": {"enum": [each.name for each in model.outputs]},
            "parameters": {"type": ["object", "null"]},
        },
        "required": ["name"],
    }
    return _object(
        {"inputs": _list({"anyOf": inputs}, minItems=len(inputs), maxItems=len(inputs))},
        id={"type": ["string", "null"], "maxLength": MAX_ID},
        parameters={
            "type": ["object", "null"],
            "properties": {key: _parameter(each) for key, each in model.handler.parameters.items()},
            "additionalProperties": False,
        },
        outputs=_list(output, maxItems=MAX_PARTS) | {"type": ["array", "null"]},
    )


def _response_schema(name: str, model: ServedModel) -> _Schema:
    outputs = [
        _object(
            {
                "name": {"const": each.name},
                "datatype": {"const": each.datatype},
                "shape": _list({"type": "integer"}),
                "data": _list({"type": _JSON_TYPES[each.datatype]}),
            }
        )
        | {"description": each.meaning}
        for each in model.outputs
    ]
    parameters = {
        "type": "object",
        "properties": {WARNING: {"type": "string", "description": "Which texts do not look like their language."}},
        "additionalProperties": {"type": "string"},
        "description": "fingerprint.LANGUAGE: SHA-256 of all that decides an answer in a language of the request.",
    }
    return _object(
        {
            "model_name": {"const": name},
            "id": {"type": "string"},
            "parameters": parameters,
            "outputs": _list({"anyOf": outputs}),
        }
    )


def _input(name: str, texts: int, item: _Schema) -> _Schema:
    return _object(
        {
            "name": {"const": name},
            "datatype": {"const": "BYTES"},
            "shape": _list({"type": "integer", "minimum": 1, "maximum": texts}, minItems=1, maxItems=1),
            "data": _list(item, minItems=1, maxItems=texts),
        },
        parameters={"type": ["object", "null"], "maxProperties": 0},
    )


def _parameter(known: RequestParameter) -> _Schema:
    schema = {"default": known.default, "description": known.meaning}
    if isinstance(known.default, bool):
        return schema | {"type": "boolean"}
    if known.choices:
        return schema | {"enum": [*known.choices]}
    return schema | {"type": "integer", "minimum": known.minimum, "maximum": known.maximum}


def _get(summary: str, properties: _Schema) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": _json("The answer.", _object(properties))}}}


def _readiness(summary: str) -> dict[str, Any]:
    schema = _object({"ready": {"type": "boolean"}})
    responses = {"200": _json("Ready.", schema), "503": _json("Not ready.", schema)}
    return {"get": {"summary": summary, "responses": responses}}


def _errors(statuses: Mapping[str, str]) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/Error"}
    return {status: _json(meaning, error) for status, meaning in statuses.items()}


def _json(description: str, schema: _Schema) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _list(items: _Schema, **limits: int) -> _Schema:
    return {"type": "array", "items": items, **limits}


def _object(required: _Schema, **optional: Any) -> _Schema:
    return {"type": "object", "properties": required | optional, "required": list(required)}


def render_page(description: Mapping[str, Any]) -> str:
    """Render an OpenAPI description as HTML without scripts or external resources, so that it works offline."""
    title = escape(description["info"]["title"])
    operations = "".join(
        "".join(_operation(f"{method.upper()} {path}", operation))
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><main>'
        f'<h1>{title}</h1><p>Open Inference Protocol, version 2. As data: <a href="openapi.json">openapi.json</a>. '
        f"Version {escape(description['info']['version'])}.</p>{operations}</main></body></html>"
    )


def _operation(name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section><h2><code>{escape(name)}</code></h2>"
    yield f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]
        yield f"<p>Example:</p><pre>{escape(json.dumps(body['example'], indent=1))}</pre>"
        for key, parameter in body["schema"]["properties"].get("parameters", {}).get("properties", {}).items():
            limits = ", ".join(f"{each} {json.dumps(parameter[each])}" for each in parameter if each != "description")
            yield f"<p>Parameter <code>{escape(key)}</code> ({escape(limits)}): {escape(parameter['description'])}.</p>"
        yield f"<details><summary>Schema</summary><pre>{escape(json.dumps(body['schema'], indent=1))}</pre></details>"
    yield "<table>"
    for status, response in operation["responses"].items():
        yield f"<tr><th scope=row>{status}</th><td>{escape(response['description'])}</td></tr>"
    yield "</table></section>"
