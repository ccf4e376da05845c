"""The gRPC side of the tests: kserve's own stub and messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from kserve import InferResponse
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

from pipelines.endpoint import RunningServer
from tests.serving.asking import VALID
from tests.serving.shared import SharedServer


@contextmanager
def stub(server: RunningServer | SharedServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield GRPCInferenceServiceStub(channel)


def asked(model: str, **texts: list[str]) -> Any:
    inputs = [
        pb.ModelInferRequest.InferInputTensor(
            name=name,
            datatype="BYTES",
            shape=[len(values)],
            contents=pb.InferTensorContents(bytes_contents=[value.encode() for value in values]),
        )
        for name, values in texts.items()
    ]
    return pb.ModelInferRequest(model_name=model, inputs=inputs)


def message_of(model: str) -> Any:
    given = {each["name"]: each["data"] for each in VALID[model]["inputs"]}
    return asked(model, **given)


def values_of(response: Any) -> dict[str, list[Any]]:
    """Return flat values by output; strings decoded."""
    arrays = {each.name: each.as_numpy().ravel().tolist() for each in InferResponse.from_grpc(response).outputs}
    return {
        name: [value.decode() if isinstance(value, bytes) else value for value in values]
        for name, values in arrays.items()
    }
