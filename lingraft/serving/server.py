"""The server: kserve's ModelServer with the endpoint's models, over REST and gRPC."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kserve import ModelServer
from kserve.model import BaseKServeModel
from kserve.model_server import app

from lingraft.data.language_detection import LanguageDetector
from lingraft.serving import logs
from lingraft.serving.endpoint import Endpoint
from lingraft.serving.repository import Repository
from lingraft.serving.rest import mount
from lingraft.serving.rpc import RpcServer
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from lingraft.signals import not_ignored

_GRACE_S = 1
"""Time limit in seconds for requests that are left after draining, because they exceeded the limit of the settings."""


def serve(served: ServedBundles, settings: ServingSettings, token: str | None) -> None:
    """Serve bundles until SIGTERM or SIGINT.

    Args:
        token: bearer token that requests must carry; None for none.

    Raises:
        Interruption: a signal came before the event loop ran.
        ServingError: two models have the same name, or the repository is no folder.
    """
    endpoint = Endpoint(served, settings, LanguageDetector.load() if settings.detect else None)
    repository = Repository(served, settings.repository, settings.precision) if settings.repository else None
    mount(app, endpoint, token, repository)
    _KserveServer(endpoint, token).start([_KserveModel(name) for name in endpoint.models])


class _KserveModel(BaseKServeModel):  # type: ignore[misc]  # kserve has no types
    """Entry of a model in kserve's repository; the endpoint answers its requests."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True


class _KserveServer(ModelServer):  # type: ignore[misc]  # kserve has no types
    """ModelServer on the configured address, which finishes accepted requests before it ends."""

    def __init__(self, endpoint: Endpoint, token: str | None) -> None:
        settings = endpoint.settings
        super().__init__(
            http_port=settings.port,
            workers=1,
            enable_grpc=False,
            enable_latency_logging=False,
            grace_period=_GRACE_S,
        )
        self._endpoint = endpoint
        self._rpc = RpcServer(endpoint, token) if settings.grpc_port else None
        self._listening = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None

    def register_signal_handler(self) -> None:
        """Leave signals to `interruptible` until the event loop runs; kserve's handlers would only drop them."""

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.log_loop_error)
        for number in not_ignored():
            loop.add_signal_handler(number, self._stop, number.name)
        rest = self._rest_server
        rest.config.host = self._endpoint.settings.host
        # kserve would log the timings of each request; /metrics has them.
        rest._add_middlewares = lambda _: None
        # uvicorn would handle the signals and close its sockets first; new requests shall get a response that refuses
        # them instead.
        rest._server.capture_signals = contextlib.nullcontext
        rest._server.startup = partial(self._listen, rest._server.startup)
        self._endpoint.start()
        succeeded, _ = await asyncio.gather(self._queues_succeed(), super()._serve())
        logs.log_event("ended")
        if not succeeded:
            sys.exit(1)

    async def _listen(self, listen: Callable[..., Awaitable[None]], sockets: Any = None) -> None:
        """Listen for gRPC, then for REST, and log that the server is ready unless it is stopping."""
        if self._rpc:
            await self._rpc.listen()
        await listen(sockets=sockets)
        self._listening.set()
        if self._endpoint.ready:
            logs.log_event("ready", models=list(self._endpoint.models), port=self._endpoint.settings.port)

    async def _queues_succeed(self) -> bool:
        """Wait for the queues; if one fails, finish the requests of the others, stop, and return False."""
        try:
            await self._endpoint.wait_for_queues()
        except Exception as error:  # noqa: BLE001  any error; its message may quote a text
            logs.log_event("queue failed", logging.CRITICAL, error)
            await self._drain("none")
            return False
        return True

    def _stop(self, why: str) -> None:
        if self._draining:
            self._rest_server._server.should_exit = True
        else:
            self._draining = asyncio.create_task(self._drain(why))

    async def _drain(self, why: str) -> None:
        logs.log_event("draining", signal=why)
        await self._endpoint.drain()
        await self._listening.wait()
        if self._rpc:
            await self._rpc.stop()
        self._rest_server._server.should_exit = True
