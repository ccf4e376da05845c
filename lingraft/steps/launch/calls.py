"""What is launched: a function of `lingraft.steps` with its arguments, in JSON, and what became of it."""

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from lingraft.errors import LingraftError

MODULES = ("data", "language", "paper", "search", "source")
"""Of `lingraft.steps`; nothing else is ever called by name."""
Folders = Mapping[str, str | Sequence[str]]
"""Files and folders by a step's names for them; a list where it takes several."""
_NO_MEMORY = "out of memory"


class LaunchError(LingraftError):
    """A step that was launched failed, or vanished more often than it may; the message is why."""


class LostError(LaunchError):
    """A step could not say itself how it ended: it was lost once too often, or by its own fault."""


class UnknownStepError(LingraftError):
    """There is no such step."""


class Call(pydantic.BaseModel, frozen=True, extra="forbid"):
    """One step to be done."""

    step: str
    """Module and function, such as 'language.adapt'."""
    arguments: dict[str, Any]
    """As JSON holds them: paths are strings."""

    def run(self) -> Any:
        """Do it, in this process.

        Raises:
            UnknownStepError: there is none of this name.
            LingraftError: it failed.
        """
        function = self.function
        kinds = typing.get_type_hints(function)
        given = {
            name: pydantic.TypeAdapter(kinds[name]).validate_python(self.arguments[name]) for name in self.arguments
        }
        return function(**given)

    @property
    def function(self) -> Callable[..., Any]:
        """What does it.

        Raises:
            UnknownStepError: there is none of this name, or it takes other arguments.
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
    """One or several, as several."""
    return [folders] if isinstance(folders, str) else [*folders]


def is_done(call: Call) -> bool:
    """Whether a step has been done before, so that it takes no machine of its own to do it again."""
    from lingraft.steps.run_job import is_job_done

    return is_job_done(call.function, call.run)


class StepAnswer(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What a step says of itself in the end."""

    result: Any = None
    error: str | None = None
    """Why it failed."""
    heals: bool = False
    """Whether it may succeed a while later, with nobody mending anything."""


@dataclass(frozen=True)
class AttemptResult:
    """What became of one attempt, as its launcher sees it."""

    answer: StepAnswer | None = None
    """Absent where it could not give one any more."""
    vanished: str | None = None
    """How it was lost, if that was no fault of its own."""
    failed: str | None = None
    """How it ended, if it was lost by a fault of its own, such as taking too much memory."""

    @property
    def heals(self) -> bool:
        """Whether it is worth another attempt."""
        return self.vanished is not None or bool(self.answer and self.answer.heals)

    @property
    def reason(self) -> str | None:
        """Why there is no result; None if there is one."""
        return self.vanished or self.failed or (self.answer.error if self.answer else None)


def out_of_memory(what: str, limit: str) -> AttemptResult:
    """The end of a step that the kernel killed for its memory: more of the same would end the same."""
    return AttemptResult(
        failed=f"{what} was killed {_NO_MEMORY} ({limit}). Give its profile more memory, or take smaller micro-batches."
    )
