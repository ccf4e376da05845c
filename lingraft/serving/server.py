"""KServe's servers of REST and gRPC with our models, and the routes that KServe does not have."""

import asyncio
from typing import Any

import grpc
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from kserve import InferRequest
from kserve.constants.constants import INFERENCE_CONTENT_LENGTH_HEADER
from kserve.logging import configure_logging
from kserve.model_server import app
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor
from kserve.protocol.grpc.servicer import InferenceServicer
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer
from starlette.exceptions import HTTPException

from lingraft.data.language_detection import LanguageDetector
from lingraft.errors import OverloadedError, RequestError, UnknownModelError
from lingraft.serving import openai, playground
from lingraft.serving.guard import TOKEN_WANTED, Guard, is_authorized, refuse
from lingraft.serving.model import ServingContext
from lingraft.serving.repository import Repository
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.served_models import metadata
from lingraft.serving.settings import ServingSettings
from lingraft.signals import not_ignored

_STATUS = {
    RequestError: (400, grpc.StatusCode.INVALID_ARGUMENT),
    UnknownModelError: (404, grpc.StatusCode.NOT_FOUND),
    OverloadedError: (429, grpc.StatusCode.RESOURCE_EXHAUSTED),
}
_OPEN_CALLS = ("/ServerLive", "/ServerReady")


def serve(served: ServedBundles, settings: ServingSettings, token: str | None) -> None:
    """Serve bundles until SIGTERM or SIGINT, and answer what was accepted before."""
    configure_logging()
    detector = LanguageDetector.load() if settings.detect else None
    repository = Repository(served, ServingContext(served.bundles, settings, detector))
    mount(app, repository, settings, token)
    asyncio.run(_serve(repository, settings, token))


def mount(app: FastAPI, repository: Repository, settings: ServingSettings, token: str | None) -> None:
    """Add our routes, which come before KServe's, and the guard to an application that has not started yet."""
    app.title = "lingraft"
    dataplane = DataPlane(repository)

    @app.post("/v2/models/{model_name}/infer", tags=["V2"])
    @app.post("/v2/models/{model_name}/versions/{version}/infer", include_in_schema=False)
    async def infer(request: Request, model_name: str, version: str = "") -> Response:
        # KServe's own route costs more, refuses JSON without a Content-Type, and lists every error of a wrong body.
        if version:
            raise UnknownModelError("models have no versions: POST /v2/models/NAME/infer.")
        body = await request.body()
        parsed = _parse(body, request.headers.get(INFERENCE_CONTENT_LENGTH_HEADER), model_name)
        response, _ = await dataplane.infer(model_name, parsed)
        content, json_length = response.to_rest()
        if json_length is None:
            return Response(orjson.dumps(content), media_type="application/json")
        headers = {INFERENCE_CONTENT_LENGTH_HEADER: str(json_length)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    @app.get("/v2/models/{model_name}", tags=["V2"])
    async def model_metadata(model_name: str) -> dict[str, Any]:
        facts = await dataplane.model_metadata(model_name)
        served = dataplane.get_model_from_registry(model_name).served
        return facts | {"platform": "onnxruntime", "parameters": metadata(served, settings)}

    @app.post("/v2/repository/index", tags=["V2"])
    async def index() -> list[dict[str, str]]:
        return repository.index()

    @app.post("/v2/repository/models/{name}/load", tags=["V2"])
    async def load(name: str, request: Request) -> dict[str, Any]:
        await repository.change(repository.load_bundle, name, await request.body())
        return {"name": name, "load": True}

    @app.post("/v2/repository/models/{name}/unload", tags=["V2"])
    async def unload(name: str, request: Request) -> dict[str, Any]:
        await repository.change(repository.unload_bundle, name, await request.body())
        return {"name": name, "unload": True}

    app.include_router(openai.router(repository.get_models, settings))
    app.add_route("/ui", playground.page)
    app.add_middleware(Guard, token=token, body_bytes=settings.body_bytes)
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


def _parse(body: bytes, json_length: str | None, name: str) -> InferRequest:
    try:
        return InferRequest.from_bytes(body, len(body) if json_length is None else int(json_length), name)
    except Exception as error:  # KeyError, TypeError, struct.error and others, by what is wrong
        reason = f"the body is not a request of the Open Inference Protocol: {type(error).__name__}: {error}"
        raise RequestError(reason[:400]) from error


async def _refused(request: Request, error: Any) -> Response:
    status, _ = _STATUS[type(error)]
    code = "model_not_found" if isinstance(error, UnknownModelError) else None
    headers = {"retry-after": "1"} if isinstance(error, OverloadedError) else None
    return refuse(request.url.path, status, str(error), code, headers)


async def _invalid(request: Request, error: Any) -> Response:
    problems = [f"{'.'.join(map(str, each['loc'][1:])) or 'body'}: {each['msg']}" for each in error.errors()[:5]]
    return refuse(request.url.path, 400, f"the request is not as it should be. {'; '.join(problems)}")


async def _http_error(request: Request, error: Any) -> Response:
    return refuse(request.url.path, error.status_code, error.detail, headers=error.headers)


async def _serve(repository: Repository, settings: ServingSettings, token: str | None) -> None:
    dataplane, extension = DataPlane(repository), ModelRepositoryExtension(repository)
    rest = RESTServer("kserve.model_server:app", dataplane, extension, settings.port, grace_period=settings.drain_s)
    rest.config.host = settings.host
    # uvicorn handles signals while it runs: it answers what it has accepted, and sends them again, to this handler.
    for number in not_ignored():
        asyncio.get_running_loop().add_signal_handler(number, setattr, rest._server, "should_exit", True)
    limit = ("grpc.max_receive_message_length", settings.body_bytes)
    rpc = grpc.aio.server(interceptors=[_Interceptor(token)], options=[limit, ("grpc.so_reuseport", 0)])
    add_GRPCInferenceServiceServicer_to_server(InferenceServicer(dataplane, extension), rpc)
    if settings.grpc_port:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        rpc.add_insecure_port(f"{host}:{settings.grpc_port}")
    await rpc.start()
    try:
        await rest.start()
    finally:
        await rpc.stop(settings.drain_s)


class _Interceptor(ExceptionToStatusInterceptor):  # type: ignore[misc]  # kserve has no types
    """KServe's interceptor, which also asks for the token, and knows the status of our errors."""

    def __init__(self, token: str | None) -> None:
        super().__init__()
        self._token = token

    async def intercept(self, method: Any, request_or_iterator: Any, context: Any, method_name: str) -> Any:
        authorization = dict(context.invocation_metadata()).get("authorization")
        if not method_name.endswith(_OPEN_CALLS) and not is_authorized(authorization, self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, TOKEN_WANTED)
        return await super().intercept(method, request_or_iterator, context, method_name)

    async def handle_exception(self, ex: Exception, request_or_iterator: Any, context: Any, method_name: str) -> None:
        if isinstance(ex, RequestError):
            _, status = _STATUS[type(ex)]
            await context.abort(status, str(ex))
        await super().handle_exception(ex, request_or_iterator, context, method_name)
