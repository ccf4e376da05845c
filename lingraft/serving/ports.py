"""Whether a server could listen where it is told to; known before anything else is imported or opened."""

import socket

from lingraft.errors import ServingError


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
