"""Check of the ports to listen on, made before anything else is imported or opened."""

import socket

from lingraft.errors import ServingError


def require_port(host: str, port: int) -> None:
    """Refuse an address on which the server cannot listen.

    Raises:
        ServingError: the address is in use, not allowed, or invalid.
    """
    if not 0 < port < 2**16:
        raise ServingError(f"port {port} is not possible. Choose one from 1 to {2**16 - 1}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # The server sets this option, too: a port is free while its last connections are in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ServingError(
            f"cannot listen on {host}, port {port}: {error.strerror}. "
            "Stop what listens there, or choose another port (--port, --grpc-port) or address (--host)."
        ) from error
