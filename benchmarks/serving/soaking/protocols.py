"""One request over REST or gRPC, by clients that cost less than the server does.

That is aiohttp, which kserve brings, and grpc itself.
"""

import asyncio
import sys
from http import HTTPStatus
from typing import Any, Self

import aiohttp
import numpy as np
import orjson

from benchmarks.serving.soaking.answers import Said

# kserve reads the process's own command line when it is imported.
_ARGUMENTS, sys.argv[1:] = sys.argv[1:], []
import grpc  # noqa: E402
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb  # noqa: E402
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub  # noqa: E402

sys.argv[1:] = _ARGUMENTS

_WAIT_S = 120.0
_KEPT_S = 2.0
"""An idle connection is closed by the client, before the server, which waits 5 s, does so in the midst of a request."""


class Rest:
    """A connection for each request under way."""

    name = "rest"

    def __init__(self, url: str, model: str, at_once: int) -> None:
        self._url, self._at_once = f"{url}/v2/models/{model}/infer", at_once

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._at_once, keepalive_timeout=_KEPT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None, sock_read=_WAIT_S)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, texts: list[str], languages: list[str]) -> Said | str:
        """The answer, or why there is none."""
        given = [_tensor("text", texts), _tensor("language", languages)]
        headers = {"content-type": "application/json"}
        try:
            async with self._session.post(self._url, data=orjson.dumps({"inputs": given}), headers=headers) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)
        if response.status != HTTPStatus.OK:
            return f"{response.status} {body.decode(errors='replace')[:300]}"
        outputs = {each["name"]: each for each in orjson.loads(body)["outputs"]}
        told = outputs["probabilities"]
        probabilities_KC = np.array(told["data"], np.float32).reshape(told["shape"])
        return Said(outputs["language"]["data"], outputs["label"]["data"], probabilities_KC)


class Grpc:
    """All requests on one channel."""

    name = "grpc"

    def __init__(self, address: str, model: str, at_once: int) -> None:
        self._address, self._model, self._at_once = address, model, at_once

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._address, options=[("grpc.enable_http_proxy", 0)])
        self._stub, self._room = GRPCInferenceServiceStub(self._channel), asyncio.Semaphore(self._at_once)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def ask(self, texts: list[str], languages: list[str]) -> Said | str:
        """The answer, or why there is none."""
        inputs = [_message("text", texts), _message("language", languages)]
        request = pb.ModelInferRequest(model_name=self._model, inputs=inputs)
        try:
            async with self._room:
                response = await self._stub.ModelInfer(request, timeout=_WAIT_S)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {str(error.details())[:300]}"
        outputs = {each.name: each for each in response.outputs}
        told = outputs["probabilities"]
        probabilities_KC = np.array(told.contents.fp32_contents, np.float32).reshape(list(told.shape))
        return Said(_texts(outputs["language"]), _texts(outputs["label"]), probabilities_KC)


def _tensor(name: str, data: list[str]) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(data)], "data": data}


def _message(name: str, data: list[str]) -> Any:
    contents = pb.InferTensorContents(bytes_contents=[each.encode() for each in data])
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype="BYTES", shape=[len(data)], contents=contents)


def _texts(output: Any) -> list[str]:
    return [each.decode() for each in output.contents.bytes_contents]
