"""Records of a comparison as a table to look numbers up in: each is a number, or a missing value with its reason."""

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Self, TypeVar

from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.reports.paper.efficiency import (
    RatioRule,
    Ratios,
    Reached,
    informative,
    near_maximal,
    retained,
    speed_up,
)
from lingraft.reports.paper.records import Cell, PaperRecords, Spent, TaskFacts
from lingraft.stages.results import SeedScores

SYSTEM_ORDER = (System.BL_BASE, System.BL_SMALL, System.MINIPOST, System.MINIJOINT)
"""Order of the systems in the paper's tables."""
_SHORT = 120
"""Characters of a reason where many reasons stand."""
Number = TypeVar("Number")


@dataclass(frozen=True)
class MissingValue:
    """A number that is not there."""

    reason: str

    @classmethod
    def failed(cls, why: str) -> Self:
        """Make the value of a run that failed."""
        return cls(f"failed: {why.strip().rstrip('.')}")

    @property
    def short(self) -> str:
        """First sentence of the reason, cut off where it is long; for places where many reasons stand."""
        first = re.split(r"\n|(?<=[.!?])\s", self.reason, maxsplit=1)[0].rstrip(".")
        return textwrap.shorten(first, _SHORT, placeholder=" …") if len(first) > _SHORT else first


class Variant(NamedTuple):
    """A system at a depth: a row or a column of a table."""

    system: System
    depth: int


@dataclass(frozen=True)
class CostMeasure:
    """A way of counting what a checkpoint took, in seconds."""

    prefix: str
    """Text before a unit of time, such as days."""
    spent: Spent


COMPUTE = CostMeasure("V100-", lambda point: point.flops / V100_FLOPS_PER_S)
"""FLOPs as time on a V100, by the paper's 30 TFLOP/s (appendix A.1)."""
MEASURED_SECONDS = CostMeasure("measured ", lambda point: point.elapsed_s)
"""Time that training took where it ran."""


class TargetRule(StrEnum):
    """Rule by which a score counts as near-maximal."""

    PAPER = "95% of BL_BASE's final score"
    OVER_BASELINE = "b + 95% of what BL_BASE's final score has over the trivial baseline b"


class ResultsTable:
    """Numbers of a run, by variant, task and language.

    Raises:
        ArtifactError: the records have a cell twice.
    """

    def __init__(self, records: PaperRecords) -> None:
        self.records = records
        self._reason_numbers: dict[str, int] = {}
        self._cells: dict[tuple[System, int, str, str, int], Cell] = {}
        for cell in records.cells:
            key = (cell.system, cell.depth, cell.task, cell.language, cell.pretraining_seed)
            if key in self._cells:
                raise ArtifactError(f"the records have more than one cell for {cell.name}. Keep one of them.")
            self._cells[key] = cell

    def reason_number(self, value: MissingValue) -> int:
        """Return the number of a missing value's reason: one for a whole page, in the order of first use."""
        return self._reason_numbers.setdefault(value.reason, len(self._reason_numbers) + 1)

    @cached_property
    def variants(self) -> list[Variant]:
        """Systems planned, each at the depth of tables that are not by depth."""
        return [self.variant(system) for system in SYSTEM_ORDER if system in self.records.systems]

    def variant(self, system: System) -> Variant:
        """Return a system at the depth of tables that are not by depth."""
        return Variant(system, self.records.layers if system is System.BL_BASE else self.records.depth)

    @property
    def reference(self) -> Variant:
        """BL_BASE, whose final score sets the targets."""
        return self.variant(System.BL_BASE)

    @property
    def mini_variants(self) -> list[Variant]:
        """Systems whose speed-up over BL_BASE is asked for."""
        return [variant for variant in self.variants if variant.system in {System.MINIPOST, System.MINIJOINT}]

    @property
    def main_tasks(self) -> list[TaskFacts]:
        """Tasks that count in means over tasks."""
        return [task for task in self.records.tasks if not task.appendix]

    def depths(self, system: System) -> list[int]:
        """Return the depths at which a system was run, if more than one."""
        depths = sorted({cell.depth for cell in self._of_main_seed if cell.system is system})
        return depths if len(depths) > 1 else []

    def depth_languages(self, system: System, task: TaskFacts) -> list[str]:
        """Return the languages that a system was run in at more than its usual depth."""
        usual = self.variant(system).depth
        languages = {
            cell.language
            for cell in self._of_main_seed
            if cell.system is system and cell.task == task.name and cell.depth != usual
        }
        return [language for language in task.languages if language in languages]

    def cell(self, variant: Variant, task: TaskFacts, language: str, seed: int | None = None) -> Cell | MissingValue:
        """Return the record of a run that came to its end, of the records' pretraining seed if no other is given."""
        key = (*variant, task.name, language, self.records.pretraining_seed if seed is None else seed)
        found = self._cells.get(key)
        if found is None:
            return MissingValue("not run")
        return found if found.failed is None else MissingValue.failed(found.failed)

    def final(
        self, variant: Variant, task: TaskFacts, language: str, seed: int | None = None
    ) -> SeedScores | MissingValue:
        """Return the scores at the end of training."""
        cell = self.cell(variant, task, language, seed)
        return cell if isinstance(cell, MissingValue) else cell.points[-1].scores

    def initial(self, variant: Variant, task: TaskFacts, language: str) -> SeedScores | MissingValue:
        """Return the scores with the embeddings as initialised, where update 0 was evaluated."""
        cell = self.cell(variant, task, language)
        if isinstance(cell, MissingValue):
            return cell
        return cell.points[0].scores if cell.points[0].step == 0 else MissingValue("update 0 was not evaluated")

    def baseline(self, task: TaskFacts, language: str) -> float | MissingValue:
        """Return the score of the trivial baseline."""
        found = task.baselines.get(language)
        return MissingValue("no trivial baseline is recorded") if found is None else found

    def is_informative(self, task: TaskFacts, language: str) -> bool:
        """Return whether means count the language: not if BL_BASE is known to be too near the trivial baseline."""
        reference = self.final(self.reference, task, language)
        baseline = self.baseline(task, language)
        if isinstance(reference, MissingValue) or isinstance(baseline, MissingValue):
            return True
        return informative(reference.mean, baseline)

    def target(self, task: TaskFacts, language: str, goal: TargetRule = TargetRule.PAPER) -> float | MissingValue:
        """Return the near-maximal score, or why there is none."""
        reference = self.final(self.reference, task, language)
        if isinstance(reference, MissingValue):
            return MissingValue(f"no target, since BL_BASE has no final score ({reference.short})")
        if goal is TargetRule.PAPER:
            return near_maximal(reference.mean)
        baseline = self.baseline(task, language)
        if isinstance(baseline, MissingValue):
            return baseline
        if reference.mean <= baseline:
            return MissingValue("BL_BASE does not beat the trivial baseline")
        return near_maximal(reference.mean, baseline)

    def reached(
        self,
        variant: Variant,
        task: TaskFacts,
        language: str,
        measure: CostMeasure = COMPUTE,
        goal: TargetRule = TargetRule.PAPER,
    ) -> Reached | MissingValue:
        """Return the seconds until near-maximal performance."""
        cell = self.cell(variant, task, language)
        target = self.target(task, language, goal)
        if isinstance(cell, MissingValue):
            return cell
        return target if isinstance(target, MissingValue) else cell.curve(measure.spent).reach(target)

    def speed_up(
        self, variant: Variant, task: TaskFacts, measure: CostMeasure = COMPUTE, goal: TargetRule = TargetRule.PAPER
    ) -> Ratios:
        """Return how many times less than BL_BASE a variant takes to near-maximal performance."""

        def cost(of: Variant, language: str) -> float | MissingValue:
            reached = self.reached(of, task, language, measure, goal)
            return reached if isinstance(reached, MissingValue) else reached.estimate

        return self._ratios(speed_up, cost, variant, task)

    def retained(self, variant: Variant, task: TaskFacts) -> Ratios:
        """Return the share of BL_BASE's final score that a variant keeps."""

        def score(of: Variant, language: str) -> float | MissingValue:
            final = self.final(of, task, language)
            return final if isinstance(final, MissingValue) else final.mean

        return self._ratios(retained, score, variant, task)

    def _ratios(
        self,
        rule: RatioRule,
        number: Callable[[Variant, str], float | MissingValue],
        variant: Variant,
        task: TaskFacts,
    ) -> Ratios:
        numbers: dict[str, tuple[float, float] | str] = {}
        for language in task.languages:
            own, base = number(variant, language), number(self.reference, language)
            if not self.is_informative(task, language):
                numbers[language] = "not informative"
            elif isinstance(own, MissingValue):
                numbers[language] = own.short
            elif isinstance(base, MissingValue):
                numbers[language] = f"BL_BASE {base.short}"
            else:
                numbers[language] = own, base
        return Ratios.of(rule, numbers)

    def counted(self, task: TaskFacts, found: Mapping[str, Number | MissingValue]) -> dict[str, Number]:
        """Return those numbers, by language, that means count."""
        return {
            language: number
            for language, number in found.items()
            if not isinstance(number, MissingValue) and self.is_informative(task, language)
        }

    @cached_property
    def _of_main_seed(self) -> list[Cell]:
        return [cell for cell in self.records.cells if cell.pretraining_seed == self.records.pretraining_seed]

    def pretraining_seeds(self) -> list[tuple[Variant, list[int]]]:
        """Return variants that were pretrained more than once, with their seeds, the main one last as in the paper."""
        seeds: dict[Variant, set[int]] = {}
        for cell in self.records.cells:
            seeds.setdefault(Variant(cell.system, cell.depth), set()).add(cell.pretraining_seed)
        main = self.records.pretraining_seed
        return [
            (variant, sorted(found, key=lambda seed: (seed == main, seed)))
            for variant, found in seeds.items()
            if len(found) > 1
        ]
