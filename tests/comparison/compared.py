"""A comparison that has run, and what it said, for tests to look at."""

import contextlib
import json
from pathlib import Path
from typing import Any, Self

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.comparison import runner
from lingraft.comparison.records import RECORDS_FILE, Cell, Records
from lingraft.config.recipe import Recipe
from tests.comparison.project import RECIPE, recipe, recipe_on
from tests.fixtures import once
from tests.workshop import copied

SMALL: dict[str, Any] = {
    "targets": ["de"],
    "paper": {"systems": ["BL_BASE", "MINIPOST"]},
    "tasks": [{"name": "topic", "kind": "documents", "finetuning": {"epochs": 0.5, "seeds": [1]}}],
}

SAID_FILE = "said.txt"
"""What a shared comparison wrote to standard error, beside its results."""


class Compared:
    """A finished comparison."""

    def __init__(self, recipe: Recipe, out: Path, report: Artifact) -> None:
        self.recipe, self.out, self.report = recipe, out, report
        self.records = Records.load(report.folder / RECORDS_FILE)

    @classmethod
    def run(cls, recipe: Recipe, out: Path) -> Self:
        """Run it, or what is missing of it."""
        return cls(recipe, out, runner.run(recipe, out))

    @classmethod
    def shared(cls, **changes: Any) -> Self:
        """One that all tests of a run share, so that they copy what they change."""

        def make(folder: Path) -> None:
            with (folder / SAID_FILE).open("w", encoding="utf-8") as said, contextlib.redirect_stderr(said):
                runner.run(recipe(folder, **changes), folder / "out")

        folder = once.folder("comparison", make, json.dumps(RECIPE | changes))
        return cls(recipe_on(folder, **changes), folder / "out", Artifact.load(folder / "out" / "report", Kind.REPORT))

    def copied(self, folder: Path) -> Self:
        """Copy all of its results, so that they can be gone on with."""
        out = copied(self.out, folder / "out")
        return type(self)(self.recipe, out, Artifact.load(out / "report", Kind.REPORT))

    @property
    def learned(self) -> list[Cell]:
        """Cells of target languages."""
        return [cell for cell in self.records.cells if cell.language != self.records.source]

    def cell(self, system: str, depth: int, language: str, task: str) -> Cell:
        [found] = [
            cell
            for cell in self.records.cells
            if (cell.system, cell.depth, cell.language, cell.task) == (system, depth, language, task)
        ]
        return found


def closing_line(error_output: str) -> str:
    return error_output.strip().splitlines()[-1]
