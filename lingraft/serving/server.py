"""The server: kserve's ModelServer with one bundle."""

import logging
import socket
from pathlib import Path

from lingraft.errors import MissingExtraError, ServingError
from lingraft.serving.bundle import Bundle
from lingraft.serving.gate import guard
from lingraft.serving.model import TaskModel
from lingraft.task_config import SERVED_KINDS

try:
    from kserve import ModelServer
    from kserve.model_server import app
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error


def serve(bundle: Path, host: str = "0.0.0.0", port: int = 8080) -> None:
    """Serve a bundle until SIGTERM or SIGINT, over HTTP.

    Args:
        bundle: folder of the bundle.
        host: address to listen on; all of them by default.
        port: from 1 to 65535.

    Raises:
        ServingError: the port is in use or not allowed, the bundle is of a kind that is not answered or does not give
            its golden answers, or ONNX Runtime is not usable as installed.
        MissingExtraError: ONNX Runtime is not installed.
        ArtifactError: not a bundle, or damaged.
    """
    require_port(host, port)
    opened = Bundle.load(bundle)
    if opened.kind not in SERVED_KINDS:
        raise ServingError(f"{bundle} is of kind {opened.kind!r}, but the endpoint answers {list(SERVED_KINDS)}.")
    opened.require_golden()
    model = TaskModel(opened)
    guard(app, model.name, model.metadata)
    server = _Server(host, port)
    # One line a request is enough; kserve writes four more with timings, which /metrics has too.
    logging.getLogger("kserve.trace").setLevel(logging.WARNING)
    server.start([model])


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
            "Stop what listens there, or choose another port (--port) or address (--host)."
        ) from error


class _Server(ModelServer):  # type: ignore[misc]  # kserve has no types
    """ModelServer on an address of choice; kserve itself always takes all of them."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(http_port=port, workers=1, enable_grpc=False, enable_latency_logging=False)
        self._host = host

    async def _serve(self) -> None:
        self._rest_server.config.host = self._host
        await super()._serve()
