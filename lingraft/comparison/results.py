"""Numbers of a comparison by system, start and task: means over languages and seeds, each with what it is a mean of."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import NamedTuple

from lingraft.comparison.efficiency import LearningCurve, informative, near_maximal, speed_up
from lingraft.comparison.records import Cell, Records
from lingraft.config.systems import System
from lingraft.tables import counted, format_flops, percent

SYSTEM_ORDER = (System.BL_BASE, System.BL_SMALL, System.MINIPOST, System.MINIJOINT)
"""Order of the systems in the paper's tables."""
UNKNOWN = "–"


class Case(NamedTuple):
    """A language learned with one pretraining seed."""

    language: str
    seed: int


class Variant(NamedTuple):
    """A system at a depth, from one start: a row of a table, a line of a figure."""

    start: str
    system: System
    depth: int

    def label(self, layers: int) -> str:
        """Name with the layers that embeddings are learned over."""
        return f"{self.system}, {self.depth} of {layers} layers" if self.system is not System.BL_BASE else "BL_BASE"


@dataclass(frozen=True)
class MeanScore:
    """Mean score over languages, with its spread over seeds; shares, 0 to 1."""

    value: float
    spread: float | None
    """Standard deviation, over pretraining and finetuning seeds, of the mean over languages; None for one seed."""
    count: int
    """Cases that it is a mean over."""

    def shown(self, of: int) -> str:
        """Return it in percent, with how many of the cases it is a mean over if not all."""
        spread = "" if self.spread is None else f" ± {100 * self.spread:.1f}"
        return f"{100 * self.value:.1f}{spread}" + ("" if self.count == of else f" ({self.count} of {of})")


class Results:
    """Numbers of the records."""

    def __init__(self, records: Records) -> None:
        self.records = records
        learned = [cell for cell in records.cells if cell.language != records.source]
        self.starts = list(dict.fromkeys(cell.start for cell in learned))
        self.languages = list(dict.fromkeys(cell.language for cell in learned))
        self.seeds = sorted({cell.seed for cell in learned})
        self._cells: dict[tuple[Variant, str, Case], Cell] = {}
        for cell in learned:
            variant = Variant(cell.start, cell.system, cell.depth)
            self._cells[variant, cell.task, Case(cell.language, cell.seed)] = cell

    def variants(self, start: str) -> list[Variant]:
        """Return all systems and depths from a start, in the paper's order."""
        found = {variant for variant, _, _ in self._cells if variant.start == start}
        return sorted(found, key=lambda one: (SYSTEM_ORDER.index(one.system), one.depth))

    def base(self, start: str) -> Variant:
        """Return BL_BASE from a start, whose final score sets the targets."""
        return Variant(start, System.BL_BASE, self.records.layers)

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks that count in some language, those with learning curves first."""
        found = [task for task in self.records.metrics if any(self.languages_of(start, task) for start in self.starts)]
        return sorted(found, key=lambda task: not self.has_curves(task))

    def has_curves(self, task: str) -> bool:
        """Whether a task was evaluated along the way."""
        return any(cell.has_curve for (_, name, _), cell in self._cells.items() if name == task)

    def cells(self, variant: Variant, task: str, languages: Sequence[str]) -> dict[Case, Cell]:
        """Return the scored cells of a variant on a task in some languages."""
        return {
            case: cell
            for (one, name, case), cell in self._cells.items()
            if (one, name) == (variant, task) and case.language in languages and not cell.failed
        }

    def languages_of(self, start: str, task: str) -> list[str]:
        """Return the languages in which a task counts: BL_BASE is 5 points above the trivial answer with every seed,
        and rows could be aligned for every system.
        """
        base = self.cells(self.base(start), task, self.languages)
        counts = {case.language: True for case in base}
        for case, cell in base.items():
            counts[case.language] &= cell.trivial is None or informative(cell.means[-1], cell.trivial)
        return [one for one in self.languages if counts.get(one) and one not in self.not_aligned(start)]

    def not_aligned(self, start: str) -> set[str]:
        """Return the languages whose rows could not be aligned by some system or seed."""
        return {
            case.language
            for (variant, _, case), cell in self._cells.items()
            if variant.start == start and not cell.is_aligned
        }

    def final(self, variant: Variant, task: str, checkpoint: int = -1) -> MeanScore | None:
        """Return the mean score at the end of training, or at another checkpoint."""
        cells = self.cells(variant, task, self.languages_of(variant.start, task))
        return _mean_score(cells, checkpoint)

    def in_source(self, task: str) -> MeanScore | None:
        """Return the score of BL_BASE's primaries in the source language."""
        found = {
            Case(cell.language, cell.seed): cell
            for cell in self.records.cells
            if (cell.language, cell.system, cell.task) == (self.records.source, System.BL_BASE, task)
            and not cell.failed
        }
        return _mean_score(found, -1)

    def trivial(self, start: str, task: str) -> float | None:
        """Return the mean score of the trivial answer."""
        cells = self.cells(self.base(start), task, self.languages_of(start, task))
        known = [cell.trivial for cell in cells.values() if cell.trivial is not None]
        return mean(known) if known else None

    def retained(self, variant: Variant, task: str) -> float | None:
        """Return the share of BL_BASE's final score that is kept: ratios are taken per case, then averaged."""
        pairs = self._with_base(variant, task).values()
        ratios = [own.means[-1] / base.means[-1] for own, base in pairs if base.means[-1]]
        return mean(ratios) if ratios else None

    def compute(self, variant: Variant) -> tuple[float, float, float] | None:
        """Return mean FLOPs and seconds of a whole adaptation, and its share of BL_BASE's FLOPs, starts included."""
        for task in self.tasks:
            if pairs := self._with_base(variant, task):
                own = [self._cost(variant, cell).costs[-1] for cell, _ in pairs.values()]
                base = [self._cost(variant, cell).costs[-1] for _, cell in pairs.values()]
                seconds = mean(cell.elapsed_s[-1] + cell.start_s for cell, _ in pairs.values())
                return mean(own), seconds, sum(own) / sum(base)
        return None

    def speed_ups(self, variant: Variant, task: str) -> dict[Case, float | str]:
        """Return how many times less compute than BL_BASE is spent to 95% of its final score, or why there is none."""
        found = {}
        for case, (own, base) in self._with_base(variant, task).items():
            spent = [self._reached(variant, cell, near_maximal(base.means[-1])) for cell in (own, base)]
            found[case] = speed_up(*spent)
        return found

    def reached(self, variant: Variant, task: str, language: str) -> list[float]:
        """Return the FLOPs to 95% of BL_BASE's final score by seed: 0 where no update is needed, else infinite."""
        pairs = self._with_base(variant, task, [language]).values()
        return [self._reached(variant, own, near_maximal(base.means[-1])) for own, base in pairs]

    def at_equal_compute(self, variant: Variant, task: str) -> float | None:
        """Return the mean score when each system has spent what the cheapest spends in all, case by case."""
        found = []
        for case, (own, _) in self._with_base(variant, task).items():
            others = [self._cells.get((one, task, case)) for one in self.variants(variant.start)]
            curves = [self._cost(variant, cell) for cell in others if cell and not cell.failed]
            found.append(self._cost(variant, own).at(min(curve.costs[-1] for curve in curves)))
        known = [score for score in found if score is not None]
        return mean(known) if known and len(known) == len(found) else None

    def curve(self, variant: Variant, task: str) -> LearningCurve | None:
        """Return the mean curve over the languages that count, where all have the same checkpoints."""
        cells = self.cells(variant, task, self.languages_of(variant.start, task)).values()
        curves = [self._cost(variant, cell) for cell in cells if cell.has_curve]
        longest = max((len(curve.costs) for curve in curves), default=0)
        whole = [curve for curve in curves if len(curve.costs) == longest]
        if not whole:
            return None
        costs, scores = (
            tuple(map(mean, zip(*(getattr(curve, name) for curve in whole), strict=True)))
            for name in ("costs", "scores")
        )
        return LearningCurve(costs, scores)

    def _with_base(self, variant: Variant, task: str, languages: Sequence[str] = ()) -> dict[Case, tuple[Cell, Cell]]:
        wanted = languages or self.languages_of(variant.start, task)
        base = self.cells(self.base(variant.start), task, wanted)
        own = self.cells(variant, task, wanted)
        return {case: (cell, base[case]) for case, cell in own.items() if case in base}

    def _cost(self, variant: Variant, cell: Cell) -> LearningCurve:
        """Scores over FLOPs. Seconds of a start count as the FLOPs that standard adaptation does in them."""
        base = self._cells.get((self.base(variant.start), cell.task, Case(cell.language, cell.seed)), cell)
        if base.failed or not base.elapsed_s[-1]:
            base = cell
        rate = base.flops[-1] / base.elapsed_s[-1] if base.elapsed_s[-1] else 0.0
        return LearningCurve(tuple(flops + cell.start_s * rate for flops in cell.flops), cell.means)

    def _reached(self, variant: Variant, cell: Cell, target: float) -> float:
        curve = self._cost(variant, cell)
        spent = curve.reach(target)
        return 0.0 if spent == curve.costs[0] else spent  # a start was paid by seconds of a clock, not by updates


def _mean_score(cells: Mapping[Case, Cell], checkpoint: int) -> MeanScore | None:
    """Mean over cases; the spread is over those seeds that all languages have."""
    if not cells:
        return None
    languages = {case.language for case in cells}
    by_seed: dict[tuple[int, int], dict[str, float]] = {}
    for case, cell in cells.items():
        for seed, scores in cell.scores.items():
            by_seed.setdefault((case.seed, seed), {})[case.language] = scores[checkpoint]
    whole = [mean(found.values()) for found in by_seed.values() if found.keys() == languages]
    spread = stdev(whole) if len(whole) > 1 else None
    return MeanScore(mean(cell.means[checkpoint] for cell in cells.values()), spread, len(cells))


def speed_up_in_words(found: Iterable[float | str]) -> str:
    """Return the mean of ratios, how many they are, and else why there is none."""
    cases = [*found]
    ratios = [ratio for ratio in cases if not isinstance(ratio, str)]
    if ratios:
        return f"speed-up {mean(ratios):.1f}×" + (
            "" if len(ratios) == len(cases) else f" ({len(ratios)} of {len(cases)})"
        )
    reasons = Counter(map(str, cases)).most_common()
    return "; ".join(f"{why} ({count})" for why, count in reasons) or UNKNOWN


def cost_in_words(flops: Sequence[float]) -> str:
    """Return a mean cost over seeds, or that a seed needs none or never gets there."""
    if not flops:
        return UNKNOWN
    if missed := sum(map(math.isinf, flops)):
        return "never" if missed == len(flops) else f"never by {missed} of {counted(len(flops), 'seed')}"
    return format_flops(mean(flops)) if any(flops) else "at once"


def score_cell(results: Results, variant: Variant, task: str) -> str:
    """Return the lines of a table's cell: score, share of BL_BASE's, speed-up, and score at equal compute."""
    found = results.final(variant, task)
    if found is None:
        return UNKNOWN
    base = results.final(results.base(variant.start), task)
    lines = [found.shown(base.count if base else found.count)]
    share = results.retained(variant, task)
    if share is not None and variant.system is not System.BL_BASE:
        lines.append(f"{share:.0%} of BL_BASE's")
    if results.has_curves(task):
        if variant.system is not System.BL_BASE:
            lines.append(speed_up_in_words(results.speed_ups(variant, task).values()))
        equal = results.at_equal_compute(variant, task)
        lines += [] if equal is None else [f"{100 * equal:.1f} at equal compute"]
    return "\n".join(lines)


def compute_cell(results: Results, variant: Variant) -> str:
    """Return the lines of a table's cell on cost."""
    found = results.compute(variant)
    if found is None:
        return UNKNOWN
    flops, seconds, share = found
    return f"{format_flops(flops)}\n{share:.0%}\n{seconds:,.0f} s"


def share_or_unknown(share: float | None) -> str:
    """Return a share in percent."""
    return UNKNOWN if share is None else percent(share).rstrip("%")
