"""`python -m lingraft.serving BUNDLE`: serve without the rest of the command line."""

import sys

from lingraft.errors import LingraftError
from lingraft.signals import Interruption, end_quietly_on_ctrl_c, interruptible


def main() -> None:
    """Serve; print an error in one line."""
    end_quietly_on_ctrl_c()
    try:
        # The imports take a while, and as process 1 of a container, Python would ignore signals meanwhile.
        with interruptible():
            from lingraft.serving.command import run

            run(sys.argv[1:], "python -m lingraft.serving")
    except LingraftError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except Interruption:
        sys.exit(0)


if __name__ == "__main__":
    main()
