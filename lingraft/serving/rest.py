"""REST: the paths of the Open Inference Protocol, and OpenAI's of embeddings, on kserve's application."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson
from fastapi import FastAPI
from kserve.protocol.rest.server import metrics_handler
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from lingraft._version import __version__
from lingraft.errors import RequestError
from lingraft.serving import logs, openai, playground
from lingraft.serving.endpoint import Endpoint, InferResponse
from lingraft.serving.handlers.text_vectors import OPENAI_PATH
from lingraft.serving.openapi import openapi_description, render_page
from lingraft.serving.playground import Handler
from lingraft.serving.repository import Change, Repository, parse_change
from lingraft.serving.request_guard import (
    LOG_FIELDS,
    RequestGuard,
    error_response,
    error_status,
    json_error,
)
from lingraft.serving.requests import InferRequest, parse_json

_CLIENT_GONE = 499
"""Status that nginx uses for a client that closed the connection; it appears only in metrics."""


def mount(app: FastAPI, endpoint: Endpoint, token: str | None, repository: Repository | None = None) -> None:
    """Add the endpoint's paths and the request guard to an application that has not started yet.

    Args:
        app: kserve's application, which adds routes of its own when it starts; the guard blocks those.
        token: bearer token that requests must carry; None for none.
        repository: what clients may load and unload; None for nothing.
    """
    description = partial(openapi_description, endpoint, token is not None)
    gets: dict[str, Handler] = {
        "/": _json_handler(lambda: {"status": "alive"}),
        "/metrics": metrics_handler,
        "/v2": _json_handler(
            lambda: {
                "name": "lingraft",
                "version": __version__,
                "extensions": ["model_repository"] if repository else [],
            }
        ),
        "/v2/health/live": _json_handler(lambda: {"live": True}),
        "/v2/health/ready": _ready(lambda: endpoint.ready, {}),
        "/v2/models": _json_handler(lambda: {"models": list(endpoint.models)}),
        "/openapi.json": _json_handler(description),
        "/docs": _handler(lambda: HTMLResponse(render_page(description()))),
        **playground.HANDLERS,
    }
    posts: dict[str, Handler] = {}
    for name in endpoint.models:
        gets[f"/v2/models/{name}"] = _json_handler(partial(endpoint.metadata, name))
        gets[f"/v2/models/{name}/ready"] = _ready(partial(_is_ready, endpoint, name), {"name": name})
        posts[f"/v2/models/{name}/infer"] = _handle(endpoint, partial(_infer, name), error_response)
    if openai.embedding_models(endpoint):
        gets[openai.MODELS_PATH] = _json_handler(partial(openai.models_response, endpoint))
        posts[OPENAI_PATH] = _handle(endpoint, partial(_embed, endpoint), _openai_error)
    if repository:
        posts["/v2/repository/index"] = _json_handler(repository.index)
        for name in repository.started:
            for verb, change in (("load", repository.load), ("unload", repository.unload)):
                handler = _changing(repository, partial(change, name), {"name": name, verb: True})
                posts[f"/v2/repository/models/{name}/{verb}"] = handler
    # FastAPI has routes of its own for some of these paths. Its `add_api_route` would cost each request 85 µs more.
    app.router.routes.clear()
    for method, handlers in (("GET", gets), ("POST", posts)):
        for path, handler in handlers.items():
            app.add_route(path, handler, methods=[method])
    app.add_middleware(RequestGuard, endpoint=endpoint, paths=frozenset(gets | posts), token=token)
    app.add_exception_handler(HTTPException, _http_error)


def _handler(response: Callable[[], Response]) -> Handler:
    async def handler(_: Request) -> Response:
        try:
            return response()
        except RequestError as error:
            return error_response(error)

    return handler


def _json_handler(content: Callable[[], Any]) -> Handler:
    return _handler(lambda: JSONResponse(content()))


def _ready(is_ready: Callable[[], bool], facts: dict[str, str]) -> Handler:
    def response() -> Response:
        ready = is_ready()
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"ready": ready} | facts, status)

    return _handler(response)


def _is_ready(endpoint: Endpoint, name: str) -> bool:
    return endpoint.ready and name in endpoint.models


def _changing(repository: Repository, change: Callable[[Change], None], answer: dict[str, Any]) -> Handler:
    """Handle requests to load or unload, which take seconds, in the repository's thread."""

    async def handler(request: Request) -> Response:
        try:
            parameters = parse_change(await request.body())
            await asyncio.get_running_loop().run_in_executor(repository.thread, change, parameters)
        except RequestError as error:
            return error_response(error)
        return JSONResponse(answer)

    return handler


class _ModelRequest(NamedTuple):
    """A parsed request to a model, and what writes its answer."""

    model: str
    request: InferRequest
    write: Callable[[InferResponse], bytes]


def _infer(name: str, body: bytes) -> _ModelRequest:
    return _ModelRequest(name, parse_json(body), _response_json)


def _embed(endpoint: Endpoint, body: bytes) -> _ModelRequest:
    parsed = openai.parse_embeddings(endpoint, body)

    def write(response: InferResponse) -> bytes:
        return orjson.dumps(openai.embeddings_response(parsed, response), option=orjson.OPT_SERIALIZE_NUMPY)

    return _ModelRequest(parsed.model, parsed.request, write)


def _openai_error(error: RequestError) -> Response:
    status = error_status(error)
    return JSONResponse(openai.error_body(error), status.code, status.headers)


def _handle(
    endpoint: Endpoint, parse: Callable[[bytes], _ModelRequest], refuse: Callable[[RequestError], Response]
) -> Handler:
    async def handler(request: Request) -> Response:
        try:
            question = parse(await request.body())
            response = await _cancel_on_disconnect(request, endpoint.answer(question.model, question.request))
            request.scope[LOG_FIELDS] |= logs.answer_fields(question.model, response.languages)
            return Response(question.write(response), media_type="application/json")
        except RequestError as error:
            return refuse(error)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  kserve would send its text, which may quote other clients
            logs.log_event("failed", logging.ERROR, error)
            return json_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says where.")

    return handler


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, InferResponse]) -> InferResponse:
    """Await a coroutine, and cancel it if the client disconnects.

    Raises:
        ClientDisconnect: the client disconnected.
    """
    task = asyncio.create_task(work)
    # The body has been read: the next message is that the client has disconnected.
    disconnect = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        disconnect.cancel()


def _response_json(response: InferResponse) -> bytes:
    outputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(values.shape),
            "data": values.ravel().tolist() if values.dtype == object else values.ravel(),
        }
        for tensor, values in response.outputs
    ]
    body = {
        "model_name": response.model,
        "id": response.id,
        "parameters": response.parameters,
        "outputs": outputs,
    }
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return json_error(error.status_code, error.detail, error.headers)
