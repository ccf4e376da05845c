"""The page of the comparison: what was run, what came out, what it means, and what it does not show.

Numbers come from records alone, words about them from `reading.md`, which a person writes.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.pages import RECORD_SUFFIX, write_picture, write_record
from benchmarks.paper.claims import claims, final_scores_table, headlines, pretrained_again
from benchmarks.paper.spent import pretraining_table as losses_table
from benchmarks.paper.spent import spent, stages_table, truncations
from benchmarks.speed.machine import commit, cores
from lingraft.artifacts.files import write_text
from lingraft.comparison.plan import plan_comparison
from lingraft.comparison.records import count_missing
from lingraft.config.recipe import Recipe
from lingraft.reports.paper import report
from lingraft.reports.paper.cost_tables import equal_table
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.report_table import ReportTable
from lingraft.reports.paper.results_table import COMPUTE, MEASURED_SECONDS, ResultsTable
from lingraft.reports.paper.summary import summary

_DRAWN_EVERY_S = 60
READING_FILE, DATA_FILE, NUMBERS_FILE = "reading.md", "data.md", "numbers.md"
PAGE_RECORDS_FILE, RUN_FILE = f"records{RECORD_SUFFIX}", f"run{RECORD_SUFFIX}"


@dataclass
class Page:
    """A page in a folder, to be written again and again."""

    recipe: Recipe
    out: Path
    """The comparison's folder of results."""
    folder: Path
    command: str
    hidden: Mapping[str, str]
    """Paths of this machine, which reasons of failures may name, with what to call them."""
    commit: str | None = field(default_factory=commit)
    """Commit of the code, before the page itself changes."""
    _drawn_at: float = -math.inf

    @property
    def file(self) -> Path:
        """The page itself."""
        return self.folder / "README.md"

    def write(self, records: PaperRecords) -> None:
        """Write page, tables and records of all that is there so far, and its plots once a minute."""
        if time.monotonic() - self._drawn_at > _DRAWN_EVERY_S:
            self.draw(records)
        records = self._without_paths(records)
        self.folder.mkdir(parents=True, exist_ok=True)
        trained = spent(plan_comparison(self.recipe), self.out)
        write_record(self.folder / PAGE_RECORDS_FILE, json.loads(records.model_dump_json()))
        write_record(self.folder / RUN_FILE, self._run(trained))
        grid = ResultsTable(records)
        write_text(self.folder / NUMBERS_FILE, "\n".join(self._numbers(grid, trained)) + "\n")
        write_text(self.file, "\n".join(self._lines(grid, trained)) + "\n")

    def draw(self, records: PaperRecords) -> None:
        """Draw all plots of what is there so far."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for file, png in report.pictures(records, _SHOWN).items():
            write_picture(self.folder / f"{file}.png", png)
        self._drawn_at = time.monotonic()

    def _without_paths(self, records: PaperRecords) -> PaperRecords:
        told = records.model_dump_json()
        for path, name in self.hidden.items():
            told = told.replace(path, name)
        return PaperRecords.model_validate_json(told)

    def _run(self, trained: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """How it was run, without the paths of this machine."""
        recipe = self.recipe.model_dump(mode="json", exclude={"text": {"path"}, "cluster": True, "gate": True})
        for task in recipe["tasks"]:
            for examples in ("train", "dev", "test"):
                task.pop(examples)
        return {
            "command": self.command,
            "commit": self.commit,
            "cores": cores(),
            "recipe": recipe,
            "trained": [*trained],
        }

    def _lines(self, grid: ResultsTable, trained: Sequence[dict[str, Any]]) -> Iterator[str]:
        comparison, records = plan_comparison(self.recipe), grid.records
        holes = count_missing(comparison, records)
        yield from ("# The paper's comparison, on real text", "")
        if holes.missing or holes.short:
            failed = sum(cell.failed is not None for cell in (*records.cells, *records.source_cells))
            told = f"{holes.missing - failed} of {holes.planned} cells are not yet run, {failed} failed"
            yield from (f"**Not finished: {told}, {holes.short} lack finetuning seeds.**", "")
        yield from self._what_was_run(records)
        yield from ("## What came out", "")
        final = (final_scores_table(grid, task) for task in grid.records.tasks)
        for table in (*headlines(grid), claims(grid), *final):
            yield from table.markdown()
        for file, said in _SHOWN.items():
            if (self.folder / f"{file}.png").exists():
                yield from (f"![{said}]({file}.png)", "", f"{said}.", "")
        yield from ("## What it means", "", self._by_hand(READING_FILE, "Not yet written."), "")
        yield from ("## What is not shown", "", *self._limits(grid, trained), "")
        yield (
            f"More: masked tokens at equal cost, losses and seconds by stage in {_link(NUMBERS_FILE)}; every seed's "
            f"score in `{PAGE_RECORDS_FILE}`, settings in `{RUN_FILE}`. The command also writes a report with all of "
            "the paper's tables and figures, by system and by depth."
        )

    def _numbers(self, grid: ResultsTable, trained: Sequence[dict[str, Any]]) -> Iterator[str]:
        yield from (
            "# The comparison's further tables",
            "",
            f"What they are of: {_link(self.file.name)}.",
            "",
        )
        for table in self._tables(grid, trained):
            yield from table.markdown()

    def _what_was_run(self, records: PaperRecords) -> Iterator[str]:
        shape = self.recipe.encoder
        yield from ("## What was run", "", "```sh", self.command, "```", "")
        yield (
            f"{', '.join(map(str, records.systems))}, in {', '.join(self.recipe.targets)}, from a primary in "
            f"{records.source} of {shape.layers} layers, {shape.width} wide, with MLM heads at {list(shape.mlm_heads)} "
            f"(MINIJOINT) and mini-models of {records.depth} layers. On {records.machine or 'no machine yet'}, commit "
            f"{self.commit}. Stopped, the command goes on. Budget, and how sizes follow from it: "
            "[decision 16](../decisions/0016-small-comparison.md)."
        )
        yield ""
        yield from (line for note in records.notes[:1] for line in (note, ""))

    def _limits(self, grid: ResultsTable, trained: Sequence[dict[str, Any]]) -> Iterator[str]:
        """Yield what was left out, by the records, and where to read what differs from the paper."""
        told = [line for line in summary(grid) if line.startswith(("Not informative", "Of "))]
        yield from (f"- {line}" for line in [*told, *truncations(trained), *grid.records.notes[1:]])
        yield f"- Data, domains, licences, and what differs from the paper: {_link(DATA_FILE)}."

    def _tables(self, grid: ResultsTable, trained: Sequence[dict[str, Any]]) -> Iterator[ReportTable]:
        """Yield the tables that the report does not have."""
        for seed, again in pretrained_again(grid).items():
            yield claims(again, f"Claims, pretraining seed {seed}")
        for task in grid.records.tasks:
            if task.appendix:
                yield from (equal_table(grid, task, measure) for measure in (COMPUTE, MEASURED_SECONDS))
        yield losses_table(trained)
        yield stages_table(plan_comparison(self.recipe), self.out, trained)

    def _by_hand(self, file: str, otherwise: str) -> str:
        place = self.folder / file
        return place.read_text(encoding="utf-8").strip() if place.exists() else otherwise


def _link(file: str) -> str:
    return f"[{file}]({file})"


_SHOWN = {
    "curves-masked": "Masked tokens that the primary finds while a language's embeddings are learned, by compute",
    "curves-pan-x": "The same for names that the finetuned primary finds, mean of the seeds",
    "curves-xnli": "The same for inference, mean of the seeds; chance is 33.3%",
    "depths-minijoint": "What the depth of the mini-model changes",
}
"""Figures on the page itself, with what they show."""
