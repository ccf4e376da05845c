"""The command that serves, for `lingraft serve` and `python -m lingraft.serving`."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import pydantic

from lingraft.config.section import explain_problem
from lingraft.errors import MissingExtraError, ServingError
from lingraft.serving import logs
from lingraft.serving.ports import require_port
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings, read_token
from lingraft.signals import Interruption, interruptible


def run(arguments: Sequence[str], program: str) -> None:
    """Serve as a command line says, until SIGTERM or SIGINT; one that comes before the server is ready ends it, too.

    Args:
        arguments: bundles and settings.
        program: what the help calls it.

    Raises:
        ServingError: a setting is not possible, a port is in use or not allowed, the bundles do not go together, a
            golden answer is missed, or ONNX Runtime is not usable as installed.
        ArtifactError: a folder is no bundle, or damaged.
        PublicationError: the folder of publications is not there.
        MissingExtraError: a part is not installed.
    """
    try:
        with interruptible():
            _run(arguments, program)
    except Interruption:
        logs.log_event("ended")


def _run(arguments: Sequence[str], program: str) -> None:
    given = vars(_parser(program).parse_args(arguments))
    bundles = [*given.pop("bundles"), *(given.pop("bundle") or [])]
    settings = _settings(given)
    for port in filter(None, (settings.port, settings.grpc_port)):
        require_port(settings.host, port)
    if not importlib.util.find_spec("kserve"):
        raise MissingExtraError("kserve", "serving")
    allowed = read_token()
    logs.configure()
    served = ServedBundles.load(bundles, settings.precision)
    # kserve takes seconds to import, and reads the process's own command line then; ours says nothing to it.
    sys.argv[1:] = []
    from lingraft.serving.server import serve

    serve(served, bundles, settings, allowed)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Serve bundles, from `lingraft export onnx`: text and language in, answers out.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=44, width=120),
    )
    parser.add_argument("bundles", type=Path, nargs="*", metavar="BUNDLE", help="folder of a bundle")
    parser.add_argument("--bundle", type=Path, action="append", metavar="DIR", help="the same; may be repeated")
    for name, field in ServingSettings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        help_text = f"{field.description} (default: {field.default})"
        if field.annotation is bool:
            parser.add_argument(flag, default=field.default, action=argparse.BooleanOptionalAction, help=help_text)
        else:
            parser.add_argument(flag, default=field.default, help=help_text)
    return parser


def _settings(given: dict[str, object]) -> ServingSettings:
    try:
        return ServingSettings.model_validate(given)
    except pydantic.ValidationError as error:
        problem = explain_problem(ServingSettings, error.errors()[0])
        raise ServingError(f"--{problem.replace('_', '-', 1) if '_' in problem.split(':')[0] else problem}") from error
