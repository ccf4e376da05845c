"""`python -m lingraft.serving --bundle DIR`: serve without the rest of the command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pydantic

from lingraft.errors import LingraftError, ServingError
from lingraft.section import explain
from lingraft.serving.settings import Settings


def main() -> None:
    """Serve, or say in one line why not."""
    try:
        run(sys.argv[1:], "python -m lingraft.serving")
    except LingraftError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def run(arguments: Sequence[str], program: str) -> None:
    """Serve as a command line says.

    Args:
        arguments: bundles and settings.
        program: what the help calls it.

    Raises:
        ServingError: a setting is not possible, or the server cannot start.
        ArtifactError: a folder is no bundle, or damaged.
        MissingExtraError: a part is not installed.
    """
    given = vars(_parser(program).parse_args(arguments))
    bundles = [*given.pop("bundles"), *(given.pop("bundle") or [])]
    settings = _settings(given)
    # kserve reads the process's own command line when it is imported; ours says nothing to it.
    sys.argv[1:] = []
    from lingraft.serving.server import serve

    serve(bundles, settings)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Serve bundles, from `lingraft export onnx`: text and language in, answers out.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=40, width=120),
    )
    parser.add_argument("bundles", type=Path, nargs="*", metavar="BUNDLE", help="folder of a bundle")
    parser.add_argument("--bundle", type=Path, action="append", metavar="DIR", help="the same; may be repeated")
    for name, field in Settings.model_fields.items():
        flag, help_text = f"--{name.replace('_', '-')}", f"{field.description} (default: {field.default})"
        if field.annotation is bool:
            parser.add_argument(flag, default=field.default, action=argparse.BooleanOptionalAction, help=help_text)
        else:
            parser.add_argument(flag, default=field.default, help=help_text)
    return parser


def _settings(given: dict[str, object]) -> Settings:
    try:
        return Settings.model_validate(given)
    except pydantic.ValidationError as error:
        problem = explain(Settings, error.errors()[0])
        raise ServingError(f"--{problem.replace('_', '-', 1) if '_' in problem.split(':')[0] else problem}") from error


if __name__ == "__main__":
    main()
