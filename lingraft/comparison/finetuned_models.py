"""The models that an arm of the comparison is evaluated with: a primary, and what it was finetuned to."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from lingraft.artifacts.failures import InputFailedError, failure_reason
from lingraft.comparison.plan import FinetuningRun, PlannedPrimary
from lingraft.config.tasks import Task
from lingraft.model.loading import LoadedPrimary, load_primary


@dataclass(frozen=True)
class FinetunedModels:
    """Folders of a primary and of the models finetuned from it."""

    planned: PlannedPrimary
    primary: Path
    tasks: Path
    """Folder that has a folder for every finetuning, named by its key."""
    only: str | None = None
    """Name of the one task to evaluate on; None for all tasks and for masked tokens."""

    def restricted_to(self, task: str) -> Self:
        """Return these models restricted to one task, to masked tokens or to alignment."""
        return replace(self, only=task)

    @property
    def only_in_words(self) -> str:
        """Name of the one task, for titles; empty for all tasks."""
        return f" on {self.only!r}" if self.only else ""

    @property
    def layers(self) -> int:
        """Number of layers of the whole primary."""
        return self.planned.layers

    def includes(self, task: str) -> bool:
        """Return whether the models are to be evaluated on a task."""
        return self.only in (None, task)

    @property
    def finetunings(self) -> list[FinetuningRun]:
        """Finetunings of the included tasks."""
        return [one for one in self.planned.finetunings if self.includes(one.task)]

    def tasks_in(self, language: str) -> list[Task]:
        """Return the included tasks that have examples in a language."""
        return [task for task in self.planned.recipe.tasks if self.includes(task.name) and task.covers(language)]

    def output_dir(self, folder: Path) -> Path:
        """Return the folder for results, within a folder: one of its own for a single task."""
        return folder / self.only if self.only else folder

    def load(self) -> LoadedPrimary:
        """Load the primary.

        Raises:
            RecipeError: it has not the shape that is planned.
            ArtifactError: it is damaged.
        """
        return load_primary(self.primary, self.planned.recipe.primary_shape)

    def available_folders(self, task: str, layers: int) -> list[Path]:
        """Return the folders of a task's finetunings that succeeded, one a seed.

        Raises:
            InputFailedError: none was.
        """
        wanted = [one for one in self.finetunings if (one.task, one.layers) == (task, layers)]
        reasons = [self._missing_reason(one) for one in wanted]
        if all(reasons):
            raise InputFailedError(str(reasons[0]))
        return [one.path_in(self.tasks) for one, reason in zip(wanted, reasons, strict=True) if reason is None]

    def lost(self) -> tuple[str, ...]:
        """Return the reasons of missing finetunings."""
        return tuple(reason for one in self.finetunings if (reason := self._missing_reason(one)))

    def inputs(self) -> dict[str, Path]:
        """Return all folders by name."""
        finetuned = {f"finetuning {one.key}": one.path_in(self.tasks) for one in self.finetunings}
        return {"primary": self.primary, **finetuned}

    def _missing_reason(self, wanted: FinetuningRun) -> str | None:
        folder = wanted.path_in(self.tasks)
        return failure_reason(folder) or (None if folder.is_dir() else f"the finetuning {wanted.key} is not there")
