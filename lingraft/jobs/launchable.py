"""The base of whatever a pipeline runs: a recipe, values, and folders that are declared as inputs or outputs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import pydantic

from lingraft.config.recipe import Recipe


class Role(StrEnum):
    """Role of a field that is a folder or file."""

    INPUT = "input"
    OUTPUT = "output"


Input = Annotated[Path, Role.INPUT]
OptionalInput = Annotated[Path | None, Role.INPUT]
"""An input that may be absent, which in a pipeline is an empty folder: see `without_empty_inputs`."""
InputList = Annotated[tuple[Path, ...], Role.INPUT]
Output = Annotated[Path, Role.OUTPUT]


def _parsed(given: Recipe | str) -> Recipe:
    return Recipe.parse(given) if isinstance(given, str) else given


RecipeField = Annotated[Recipe, pydantic.BeforeValidator(_parsed), pydantic.PlainSerializer(Recipe.to_json)]
"""A recipe, or its JSON."""


class Launchable(pydantic.BaseModel, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """A unit of work of a pipeline."""

    failed_result: ClassVar[Any] = None
    """Result of work that failed where others may go on."""
    recipe: RecipeField
    records_failure: bool = False
    """Whether it handles failed inputs, and writes the reason of a failure to its outputs, so that others go on."""

    def folders(self, role: Role) -> dict[str, list[Path]]:
        """Return the folders and files of a role by field; fields without any are left out."""
        found = {}
        for name, field in type(self).model_fields.items():
            if role in field.metadata:
                value = getattr(self, name)
                paths = [*value] if isinstance(value, tuple) else [value]
                found[name] = [path for path in paths if path is not None]
        return {name: paths for name, paths in found.items() if paths}

    def all_folders(self, role: Role) -> list[Path]:
        """Return the folders and files of a role, of all fields."""
        return [path for paths in self.folders(role).values() for path in paths]

    def without_empty_inputs(self) -> Self:
        """Return this with None for every optional input that is empty, as a pipeline's absent inputs are.

        KFP has no optional inputs inside loops, so a step leaves the folder of an output empty. An object store keeps
        no empty folders: for the next step, the folder does not exist.
        """
        fields = type(self).model_fields
        optional = [name for name in self.folders(Role.INPUT) if fields[name].default is None]
        return self.model_copy(update={name: None for name in optional if _is_empty(getattr(self, name))})


def _is_empty(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))
