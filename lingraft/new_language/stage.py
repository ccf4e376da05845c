"""Stages of adding one language: run, counted among all on the console, and timed."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from lingraft.artifacts.artifact import Artifact
from lingraft.console import never_silent, say, start_step
from lingraft.jobs.job import Job


@dataclass(frozen=True)
class Stages:
    """Stages that have ended, in their order."""

    seconds: dict[str, float | None] = field(default_factory=dict)
    """Seconds that each took, by name; None where its result existed before."""

    def run(self, job: Job, stage: str = "") -> Artifact:
        """Run a job unless its artifact was made before from the same, and print which of the two it was.

        Args:
            stage: name of the stage as it was planned; the artifact's kind if empty.
        """
        name = stage or job.kind
        with self.counted(name) as reused, job.cached() as found:
            made = found or job.make()
            reused.append(found is not None)
        say(f"{name}: {job.made} ({made.fingerprint[:12]}){', as it was' if found else ''}")
        return made

    @contextlib.contextmanager
    def counted(self, kind: str) -> Iterator[list[bool]]:
        """Print the number of a stage, count it at the end, and take its time; stages of one kind are added up.

        Args:
            kind: name of the stage as it was planned.

        Yields:
            A list, to which the body adds whether the stage's output existed before.
        """
        headline, end = start_step(kind)
        if headline:
            say(headline)
        began = time.monotonic()
        reused: list[bool] = []
        with never_silent(kind):
            yield reused
        end(any(reused))
        if not any(reused):
            self.seconds[kind] = (self.seconds.get(kind) or 0.0) + time.monotonic() - began
        else:
            self.seconds.setdefault(kind, None)
