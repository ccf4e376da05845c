"""Calls of steps: a function of `lingraft.steps` with its arguments, in JSON, and its result."""

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from lingraft.errors import LingraftError

MODULES = ("data", "language", "paper", "search", "source")
"""Modules of `lingraft.steps` whose functions may be called by name."""
Folders = Mapping[str, str | Sequence[str]]
"""Files and folders by parameter of a step; a list where it takes several."""
_NO_MEMORY = "out of memory"


class LaunchError(LingraftError):
    """A launched step failed, or was lost more often than allowed; the message gives the reason."""


class LostError(LaunchError):
    """A step ended without an answer: it was lost too often, or through its own fault."""


class UnknownStepError(LingraftError):
    """The step or one of its parameters does not exist."""


class Call(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Call of one step."""

    step: str
    """Module and function, such as 'language.adapt'."""
    arguments: dict[str, Any]
    """Arguments in JSON; paths are strings."""

    def run(self) -> Any:
        """Run the step in this process, and return its result.

        Raises:
            UnknownStepError: there is no step of this name.
            LingraftError: the step failed.
        """
        function = self.function
        kinds = typing.get_type_hints(function)
        given = {
            name: pydantic.TypeAdapter(kinds[name]).validate_python(self.arguments[name]) for name in self.arguments
        }
        return function(**given)

    @property
    def function(self) -> Callable[..., Any]:
        """Function of the step.

        Raises:
            UnknownStepError: there is no step of this name, or it takes other arguments.
        """
        module, _, name = self.step.partition(".")
        if module not in MODULES:
            raise UnknownStepError(f"step {self.step!r} is of no module that has steps: {', '.join(MODULES)}.")
        found = getattr(importlib.import_module(f"lingraft.steps.{module}"), name, None)
        if not inspect.isfunction(found) or name.startswith("_"):
            raise UnknownStepError(f"lingraft.steps.{module} has no step {name!r}.")
        if surplus := sorted({*self.arguments} - {*inspect.signature(found).parameters}):
            raise UnknownStepError(f"step {self.step!r} takes no {', '.join(surplus)}.")
        return found


def as_list(folders: str | Sequence[str]) -> list[str]:
    """Return one or several folders as a list."""
    return [folders] if isinstance(folders, str) else [*folders]


def is_done(call: Call) -> bool:
    """Return whether the result of a step exists, so that it needs no machine of its own."""
    from lingraft.steps.run_job import is_job_done

    return is_job_done(call.function, call.run)


class StepAnswer(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Answer of a step when it ends: its result, or an error."""

    result: Any = None
    error: str | None = None
    """Why the step failed; None if it succeeded."""
    heals: bool = False
    """Whether the error is transient, so that a later attempt may succeed."""


@dataclass(frozen=True)
class AttemptResult:
    """Result of one attempt, as its launcher sees it."""

    answer: StepAnswer | None = None
    """Answer of the step; None if it ended without one."""
    vanished: str | None = None
    """How the step was lost, if that was no fault of its own."""
    failed: str | None = None
    """How the step ended, if it was lost through its own fault, such as taking too much memory."""

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
