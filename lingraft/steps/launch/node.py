"""`python -m lingraft.steps.launch.node CALL ANSWER`: one of several machines that do a step together.

The first does the step, and its trainings run on all of them; the others take part in each, and end when it has.
"""

import sys

from lingraft import ranks
from lingraft.signals import Interruption, interruptible
from lingraft.steps.launch import step
from lingraft.training.distributed import launch


def main() -> None:
    """Do the step, or take part in it."""
    if ranks.node_rank() == 0:
        try:
            step.main()
        finally:
            launch.leave()
    try:
        with interruptible():
            sys.exit(launch.join())
    except Interruption as interruption:
        print(f"stopped: {interruption}", file=sys.stderr)
        sys.exit(interruption.exit_code)


if __name__ == "__main__":
    main()
