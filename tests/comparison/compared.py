"""A comparison that has run, and what it said, for tests to look at."""

from pathlib import Path
from typing import Any

from lingraft.comparison import runner as comparison
from lingraft.config import Recipe
from lingraft.paper.records import Cell, PaperRecords

SMALL: dict[str, Any] = {
    "targets": ["de"],
    "paper": {"systems": ["BL_BASE", "MINIPOST"]},
    "tasks": [{"name": "topic", "kind": "documents", "finetuning": {"epochs": 0.5, "seeds": [1]}}],
}


class Compared:
    """A finished comparison."""

    def __init__(self, recipe: Recipe, out: Path) -> None:
        self.recipe, self.out = recipe, out
        self.report = comparison.run(recipe, out)
        self.records = PaperRecords.load(self.report.folder)

    def cell(self, system: str, depth: int, language: str, task: str) -> Cell:
        [found] = [
            cell
            for cell in self.records.cells
            if (cell.system, cell.depth, cell.language, cell.task) == (system, depth, language, task)
        ]
        return found


def closing_line(error_output: str) -> str:
    return error_output.strip().splitlines()[-1]
