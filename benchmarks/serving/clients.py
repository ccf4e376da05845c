"""Clients of a running server, at little cost of their own: a connection that stays open, by REST or gRPC."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

from lingraft.serving.client import RunningServer

Inputs = Mapping[str, str]
"""One value by the name of the input."""
_TIMEOUT_S = 120


class Rest:
    """REST on one connection."""

    def __init__(self, server: RunningServer) -> None:
        address = server.url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)

    def ask(self, model: str, inputs: Inputs) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer."""
        tensors = [{"name": key, "shape": [1], "datatype": "BYTES", "data": [value]} for key, value in inputs.items()]
        body = json.dumps({"inputs": tensors})
        try:
            return self._send(model, body)
        except (http.client.RemoteDisconnected, ConnectionError):  # servers end connections that rest for seconds
            self._connection.close()
            return self._send(model, body)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _send(self, model: str, body: str) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"/v2/models/{model}/infer", body, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


class Rpc:
    """gRPC on one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = GRPCInferenceServiceStub(channel)

    def ask(self, model: str, inputs: Inputs) -> Any:
        """The answer."""
        tensors = [
            pb.ModelInferRequest.InferInputTensor(
                name=key,
                datatype="BYTES",
                shape=[1],
                contents=pb.InferTensorContents(bytes_contents=[value.encode()]),
            )
            for key, value in inputs.items()
        ]
        return self._stub.ModelInfer(pb.ModelInferRequest(model_name=model, inputs=tensors), timeout=_TIMEOUT_S)


@contextlib.contextmanager
def rpc(server: RunningServer) -> Iterator[Rpc]:
    """A channel to a server, without a proxy that the environment may name."""
    with grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield Rpc(channel)
