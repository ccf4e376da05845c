"""One stage of adding a language, counted among all stages on the console."""

import contextlib
from collections.abc import Iterator

from lingraft.artifacts.artifact import Artifact
from lingraft.console import say, start_step
from lingraft.jobs.job import Job


def run_stage(job: Job, stage: str = "") -> Artifact:
    """Run a job unless its artifact was made before from the same, and print which of the two it was.

    Args:
        stage: name of the stage as it was planned; the artifact's kind if empty.

    Raises:
        ProvenanceMismatchError: the artifact exists, and was made from something else.
        LingraftError: the job fails.
    """
    name = stage or job.kind
    with counted(name) as reused, job.cached() as found:
        made = found or job.make()
        reused.append(found is not None)
    say(f"{name}: {job.made} ({made.fingerprint[:12]}){', as it was' if found else ''}")
    return made


@contextlib.contextmanager
def counted(kind: str) -> Iterator[list[bool]]:
    """Print the number of a stage, and count it at the end.

    Args:
        kind: name of the stage as it was planned.

    Yields:
        A list, to which the body adds whether the stage's output existed before.
    """
    headline, end = start_step(kind)
    if headline:
        say(headline)
    reused: list[bool] = []
    yield reused
    end(any(reused))
