"""The server: kserve's ModelServer with the endpoint's models, over REST and gRPC."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import torch

from lingraft.errors import MissingExtraError, ServingError
from lingraft.serving import logs
from lingraft.serving.detection import Detector
from lingraft.serving.endpoint import Endpoint
from lingraft.serving.following import following
from lingraft.serving.rest import mount
from lingraft.serving.rpc import RpcServer
from lingraft.serving.served import Served
from lingraft.serving.settings import Settings, token

try:
    from kserve import ModelServer
    from kserve.model import BaseKServeModel
    from kserve.model_server import app
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error


_LAST_S = 1
"""For what is left after draining, which is nothing unless a request took longer than it may."""


def serve(bundles: Sequence[Path], settings: Settings) -> None:
    """Serve bundles until SIGTERM or SIGINT.

    Raises:
        ServingError: a port is in use or not allowed, the bundles do not go together, a golden answer is missed, or
            ONNX Runtime is not usable as installed.
        MissingExtraError: ONNX Runtime is not installed.
        ArtifactError: a folder is no bundle, or damaged.
        PublicationError: the folder of publications is not there.
    """
    for port in filter(None, (settings.port, settings.grpc_port)):
        require_port(settings.host, port)
    allowed = token()
    logs.configure()
    # Answers take little of it; the cores are for ONNX Runtime.
    torch.set_num_threads(1)
    served = Served.load(bundles, settings.precision)
    endpoint = Endpoint(served, settings, Detector.load() if settings.detect else None)
    mount(app, endpoint, allowed)
    with following(served, bundles, settings.follow, settings.follow_s):
        _Server(endpoint, allowed).start([_Registered(name) for name in endpoint.models])


def require_port(host: str, port: int) -> None:
    """Refuse an address that the server could not listen on.

    Raises:
        ServingError: it is in use, not allowed, or no address at all.
    """
    if not 0 < port < 2**16:
        raise ServingError(f"port {port} is not possible. Choose one from 1 to {2**16 - 1}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server itself does: a port whose last connections are still winding down is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ServingError(
            f"cannot listen on {host}, port {port}: {error.strerror}. "
            "Stop what listens there, or choose another port (--port, --grpc-port) or address (--host)."
        ) from error


class _Registered(BaseKServeModel):  # type: ignore[misc]  # kserve has no types
    """A model's name in kserve's repository; the endpoint answers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True


class _Server(ModelServer):  # type: ignore[misc]  # kserve has no types
    """ModelServer on an address of choice, which finishes what it has taken on before it ends."""

    def __init__(self, endpoint: Endpoint, token: str | None) -> None:
        settings = endpoint.settings
        super().__init__(
            http_port=settings.port,
            workers=1,
            enable_grpc=False,
            enable_latency_logging=False,
            grace_period=_LAST_S,
        )
        self._endpoint = endpoint
        self._rpc = RpcServer(endpoint, token) if settings.grpc_port else None
        self._draining: asyncio.Task[None] | None = None

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.loop_failed)
        rest = self._rest_server
        rest.config.host = self._endpoint.settings.host
        # Its timings, a line for each request and more, are in /metrics.
        rest._add_middlewares = lambda _: None
        # uvicorn would close its sockets first: a request that comes meanwhile is to be told that it was refused.
        rest._server.handle_exit = self._told_to_end
        self._endpoint.start()
        logs.tell("ready", models=list(self._endpoint.models), port=self._endpoint.settings.port)
        rpc = [self._rpc.start()] if self._rpc else []
        worked, *_ = await asyncio.gather(self._work(), super()._serve(), *rpc)
        logs.tell("ended")
        if not worked:
            sys.exit(1)

    async def _work(self) -> bool:
        """Whether no queue has failed; where one does, the others' requests are finished, and the server ends."""
        try:
            await self._endpoint.worked()
        except Exception as error:  # noqa: BLE001  whatever it is, its own words may quote a text
            logs.tell("queue failed", logging.CRITICAL, error)
            await self._drain("none")
            return False
        return True

    def _told_to_end(self, number: int, _: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT: drain at the first one, end at the second."""
        if self._draining:
            self._rest_server._server.should_exit = True
            return
        self._draining = asyncio.get_running_loop().create_task(self._drain(signal.Signals(number).name))

    async def _drain(self, why: str) -> None:
        logs.tell("draining", signal=why)
        await self._endpoint.drain()
        if self._rpc:
            await self._rpc.stop()
        self._rest_server._server.should_exit = True
