"""`python -m lingraft.steps.launch.node CALL ANSWER`: one of several machines that run a step together.

The first machine runs the step, whose trainings use all machines; the others join each training, and end with the step.
"""

import sys

from lingraft import ranks
from lingraft.signals import Interruption, interruptible
from lingraft.steps.launch import step
from lingraft.training.distributed import launch


def main() -> None:
    """Run the step on the first machine; join its trainings on the others."""
    if ranks.node_rank() == 0:
        try:
            step.main()
        finally:
            launch.end_training()
    try:
        with interruptible():
            sys.exit(launch.join_training())
    except Interruption as interruption:
        print(f"stopped: {interruption}", file=sys.stderr)
        sys.exit(interruption.exit_code)


if __name__ == "__main__":
    main()
