"""Calls of steps as files in JSON, and the results of attempts at them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from lingraft.errors import LingraftError
from lingraft.jobs.launchable import Launchable

_NO_MEMORY = "out of memory"


class LaunchError(LingraftError):
    """A launched step failed, or was lost more often than allowed; the message gives the reason."""


class LostError(LaunchError):
    """A step ended without an answer: it was lost too often, or through its own fault."""


class Call(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Call of one step, as its process reads it."""

    step: str
    """Name of the launchable's class, such as 'AdaptationJob'."""
    run: Path | None = None
    """File with the id of the pipeline's tracking run, for steps that are tracked."""
    arguments: dict[str, Any]
    """Fields of the launchable, as JSON."""

    @classmethod
    def of(cls, work: Launchable, run: Path | None) -> "Call":
        """Return the call that runs some work under a tracking run."""
        return cls(step=type(work).__name__, run=run, arguments=work.model_dump(mode="json"))


class StepAnswer(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Answer of a step when it ends: its result, or an error."""

    result: Any = None
    error: str | None = None
    """Reason of the step's failure; None if it succeeded."""
    heals: bool = False
    """Whether the error is transient, so that a later attempt may succeed."""


@dataclass(frozen=True)
class AttemptResult:
    """Result of one attempt, as its launcher sees it."""

    answer: StepAnswer | None = None
    """Answer of the step; None if it ended without one."""
    vanished: str | None = None
    """Cause of the step's loss, if that was no fault of its own."""
    failed: str | None = None
    """Cause of the step's loss through its own fault, such as taking too much memory."""

    @property
    def heals(self) -> bool:
        """Whether another attempt may succeed."""
        return self.vanished is not None or bool(self.answer and self.answer.heals)

    @property
    def reason(self) -> str | None:
        """Reason why there is no result; None if there is one."""
        return self.vanished or self.failed or (self.answer.error if self.answer else None)


def out_of_memory(what: str, limit: str) -> AttemptResult:
    """Return the result of a step that the kernel killed for its memory, for which a retry does not help."""
    return AttemptResult(
        failed=f"{what} was killed {_NO_MEMORY} ({limit}). Give its profile more memory, or take smaller micro-batches."
    )
