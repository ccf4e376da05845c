"""`python -m lingraft.serving --bundle DIR`: serve without the rest of the command line."""

import argparse
import sys
from pathlib import Path

from lingraft.errors import LingraftError


def main() -> None:
    """Serve, or say in one line why not."""
    parser = argparse.ArgumentParser(
        prog="python -m lingraft.serving", description="Serve a bundle.", allow_abbrev=False
    )
    parser.add_argument("--bundle", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default: 8080)")
    arguments = parser.parse_args()
    try:
        from lingraft.serving.server import serve

        serve(arguments.bundle, arguments.host, arguments.port)
    except LingraftError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
