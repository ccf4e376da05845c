"""gRPC: kserve's service of the Open Inference Protocol, on the same endpoint as REST.

kserve's server answers malformed messages and tensors with INTERNAL; here they are refused with INVALID_ARGUMENT.
Models are loaded and unloaded over REST alone.
"""

import logging
import struct
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)

from lingraft._version import __version__
from lingraft.errors import OverloadedError, RequestError, StoppingError
from lingraft.serving import logs, metrics
from lingraft.serving.endpoint import Endpoint, InferResponse
from lingraft.serving.request_guard import authorization_error, is_authorized, printable
from lingraft.serving.requests import MAX_PARTS, InferRequest, InputTensor, OutputTensor, refuse_invalid

_CONTENTS = {
    "FP32": "fp32_contents",
    "INT32": "int_contents",
    "INT8": "int_contents",
    "UINT8": "uint_contents",
    "BOOL": "bool_contents",
}
_OPEN_METHODS = ("ServerLive", "ServerReady")
_GRACE_S = 1
"""Time limit in seconds for calls that are left after the endpoint has drained."""
_MAX_RESPONSE_BYTES = 64 * 2**20
_LOG_FIELDS: ContextVar[dict[str, Any]] = ContextVar("log_fields")
"""Fields of the log line of the current call."""


class RpcServer:
    """gRPC server of an endpoint, on the address of its settings."""

    def __init__(self, endpoint: Endpoint, token: str | None) -> None:
        self._endpoint = endpoint
        self._token = token
        self._server: Any = None

    async def listen(self) -> None:
        """Start the server in the running event loop."""
        settings = self._endpoint.settings
        self._server = grpc.aio.server(
            interceptors=(_Interceptor(self._token),),
            options=[
                ("grpc.max_receive_message_length", settings.body_bytes),
                ("grpc.max_send_message_length", _MAX_RESPONSE_BYTES),
                ("grpc.so_reuseport", 0),
            ],
        )
        add_GRPCInferenceServiceServicer_to_server(_Service(self._endpoint), self._server)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._server.add_insecure_port(f"{host}:{settings.grpc_port}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop the server if it is listening."""
        if self._server:
            await self._server.stop(_GRACE_S)


class _RefusedError(Exception):
    def __init__(self, status: grpc.StatusCode, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(printable(reason))
        self.status = status
        self.trailing = () if retry_after_s is None else (("retry-after", str(retry_after_s)),)


class _Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor that checks token and message of every call, and turns errors into statuses."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        name = details.method.rpartition("/")[2]
        authorization = str(dict(details.invocation_metadata).get("authorization", ""))
        authorized = name in _OPEN_METHODS or is_authorized(authorization, self._token)

        async def answer(request: Any, context: Any) -> Any:
            status = grpc.StatusCode.OK
            began_s = time.monotonic()
            log_fields = dict[str, Any]()
            _LOG_FIELDS.set(log_fields)
            try:
                if not authorized:
                    raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, authorization_error(authorization))
                if request is None:
                    reason = "the bytes of the request are no message of its type."
                    raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, reason)
                return await handler.unary_unary(request, context)
            except _RefusedError as error:
                status = error.status
                await context.abort(status, str(error), error.trailing)
            except NotImplementedError:
                status = grpc.StatusCode.UNIMPLEMENTED
                await context.abort(status, f"{name} is not offered over gRPC. Use REST: POST /v2/repository.")
            except Exception as error:  # noqa: BLE001  its text may quote other clients
                status = grpc.StatusCode.INTERNAL
                logs.log_event("failed", logging.ERROR, error, method=name)
                await context.abort(status, "the server failed; its log says where.")
            finally:
                metrics.ANSWERS.labels(f"grpc:{name}", status.name).inc()
                if name not in _OPEN_METHODS:
                    logs.log_request(f"grpc:{name}", status.name, began_s, log_fields)

        return grpc.unary_unary_rpc_method_handler(
            answer, _lenient_deserializer(handler.request_deserializer), handler.response_serializer
        )


def _lenient_deserializer(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError:
            return None

    return read


class _Service(GRPCInferenceServiceServicer):  # type: ignore[misc]  # kserve has no types
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802  the protocol's name
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerReadyResponse(ready=self._endpoint.ready)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerMetadataResponse(name="lingraft", version=__version__, extensions=[])

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._require_model(request.name, request.version)
        return pb.ModelReadyResponse(ready=self._endpoint.ready)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._require_model(request.name, request.version)
        metadata = self._endpoint.metadata(request.name)
        return pb.ModelMetadataResponse(**{key: metadata[key] for key in ("name", "platform", "inputs", "outputs")})

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._require_model(request.model_name, request.model_version)
        try:
            with self._endpoint.admit():
                with refuse_invalid():
                    infer_request = _parse_message(request)
                response = await self._endpoint.answer(request.model_name, infer_request)
                _LOG_FIELDS.get().update(logs.answer_fields(response.model, response.languages))
                return _response_message(response)
        except OverloadedError as error:
            raise _RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), error.retry_after_s) from error
        except StoppingError as error:
            raise _RefusedError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        except RequestError as error:
            raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error

    def _require_model(self, name: str, version: str) -> None:
        if name not in self._endpoint.models or version:
            shown = ascii(f"{name}, version {version}" if version else name)[:80]
            raise _RefusedError(
                grpc.StatusCode.NOT_FOUND,
                f"there is no model {shown}; there are {list(self._endpoint.models)}, without versions.",
            )


def _parse_message(request: Any) -> InferRequest:
    for what, parts in (("inputs", request.inputs), ("outputs", request.outputs)):
        if len(parts) > MAX_PARTS:
            raise RequestError(f"the request names {len(parts)} {what}; send at most {MAX_PARTS}.")
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise RequestError(f"{len(request.inputs)} inputs, but {len(raw)} raw contents: send one for each, or none.")
    inputs = [
        InputTensor(
            name=each.name,
            datatype=each.datatype,
            shape=list(each.shape),
            parameters=_parameters(each),
            data=_texts(each.name, _split_raw(each.name, raw[place]) if raw else list(each.contents.bytes_contents)),
        )
        for place, each in enumerate(request.inputs)
    ]
    outputs = [OutputTensor(name=each.name, parameters=_parameters(each)) for each in request.outputs]
    return InferRequest(id=request.id or None, parameters=_parameters(request), inputs=inputs, outputs=outputs)


def _parameters(message: Any) -> dict[str, Any]:
    fields = {key: value.WhichOneof("parameter_choice") for key, value in message.parameters.items()}
    return {key: getattr(message.parameters[key], field) if field else None for key, field in fields.items()}


def _split_raw(name: str, raw: bytes) -> list[bytes]:
    """Split a raw tensor into texts; the length of each precedes it, in 4 bytes, little-endian."""
    items = []
    place = 0
    while place < len(raw):
        length = struct.unpack_from("<I", raw, place)[0] if place + 4 <= len(raw) else len(raw)
        place += 4 + length
        if place > len(raw):
            raise RequestError(f"raw content of input {name!r} ends in the midst of a text. Send its length, then it.")
        items.append(raw[place - length : place])
    return items


def _texts(name: str, items: list[bytes]) -> list[str]:
    try:
        return [item.decode("utf-8") for item in items]
    except UnicodeDecodeError as error:
        raise RequestError(f"input {name!r} is not UTF-8 at byte {error.start} of a text. Send UTF-8.") from error


def _response_message(response: InferResponse) -> Any:
    parameters = {name: pb.InferParameter(string_param=value) for name, value in response.parameters.items()}
    message = pb.ModelInferResponse(model_name=response.model, id=response.id, parameters=parameters)
    for tensor, values in response.outputs:
        flat = values.ravel().tolist()
        if tensor.datatype == "BYTES":
            contents = pb.InferTensorContents(bytes_contents=[text.encode() for text in flat])
        else:
            contents = pb.InferTensorContents(**{_CONTENTS[tensor.datatype]: flat})
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=values.shape, contents=contents)
    return message
