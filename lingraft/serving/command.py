"""The command line of the server, for `lingraft serve` and `python -m lingraft.serving`."""

import argparse
import contextlib
import importlib.util
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pydantic

from lingraft.artifacts.manifest import MANIFEST
from lingraft.config.section import explain_problem
from lingraft.errors import MissingExtraError, ServingError
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings, read_token
from lingraft.signals import Interruption, interruptible


def run(arguments: Sequence[str], program: str) -> None:
    """Serve bundles until SIGTERM or SIGINT, which also end a server that is still starting."""
    with contextlib.suppress(Interruption), interruptible():
        options = vars(_parser(program).parse_args(arguments))
        bundles = [bundle for folder in options.pop("bundles") for bundle in bundles_in(folder)]
        settings = _settings(options)
        for port in filter(None, (settings.port, settings.grpc_port)):
            require_port(settings.host, port)
        if not importlib.util.find_spec("kserve"):
            raise MissingExtraError("kserve", "serving")
        token = read_token()
        served = ServedBundles.load(bundles, settings.precision)
        # On import, which takes seconds, kserve parses the process's command line; ours has no arguments for it.
        sys.argv[1:] = []
        from lingraft.serving.server import serve

        serve(served, settings, token)


def bundles_in(folder: Path) -> list[Path]:
    """Return a bundle's folder itself, or the bundles that lie in a folder, as `make demo` leaves one a task."""
    inner = sorted(manifest.parent for manifest in folder.glob(f"*/{MANIFEST}"))
    return inner if inner and not (folder / MANIFEST).exists() else [folder]


def require_port(host: str, port: int) -> None:
    """Refuse an address on which the server cannot listen."""
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


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Serve bundles, from `lingraft export onnx`: text and language in, answers out.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36),
    )
    parser.add_argument("bundles", type=Path, nargs="*", metavar="BUNDLE", help="folder of a bundle, or of several")
    for name, field in ServingSettings.model_fields.items():
        action = argparse.BooleanOptionalAction if field.annotation is bool else "store"
        help_text = f"{field.description} (default: {field.default})"
        parser.add_argument(f"--{name.replace('_', '-')}", default=field.default, action=action, help=help_text)
    return parser


def _settings(given: dict[str, object]) -> ServingSettings:
    try:
        return ServingSettings.model_validate(given)
    except pydantic.ValidationError as error:
        problem = explain_problem(ServingSettings, error.errors()[0])
        raise ServingError(f"--{problem.replace('_', '-', 1) if '_' in problem.split(':')[0] else problem}") from error
