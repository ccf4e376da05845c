"""Compute that an adaptation spent until it was near-maximal, with that of its alignment."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.initialisation.arms import Start, is_over_further_depth
from lingraft.comparison.plan import ALIGNMENT, MASKED
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import LearningCurve, near_maximal

NAMES = {
    Start.OVERLAP: "`overlap`",
    Start.TEXT: "`aligned`, text alone",
    Start.DICTIONARY: "`aligned`, dictionary",
    Start.PAIRS: "`aligned`, sentence pairs",
}
"""Starts as pages name them."""

TASK_NAMES = {"pos": "parts of speech", "help-topic": "help topics", "xnli": "XNLI", "pan-x": "PAN-X"}
TASK_NAMES |= {ALIGNMENT: "translations found", MASKED: "masked tokens"}
"""Tasks as pages name them; others by their own names."""

Record = dict[str, Any]

_ENDS = 2
"""Points of what is judged before and after adaptation only, which is no curve."""


class Costs:
    """Compute and seconds that each record's adaptation spent until some score, the alignment's included.

    Args:
        records: of one language.
        task: that decides.
        start: BL_BASE's, whose final score is the one to reach; if absent each record's own.
    """

    def __init__(self, records: Sequence[Record], task: str, start: Start | None = None) -> None:
        self._task, self._start = task, start
        self._references = {
            (record["start"], record["seed"]): record for record in records if record["system"] == System.BL_BASE
        }

    def alignment_flops(self, record: Record) -> float:
        """Charge the alignment's seconds at the rate at which standard adaptation spent FLOPs in its seconds."""
        measured = self._reference(record) or record
        # Of a training that is over within the clock's resolution there is no rate.
        seconds = measured["elapsed_s"][-1]
        return float(record["alignment_s"] * measured["flops"][-1] / seconds) if seconds else 0.0

    def whole(self, record: Record) -> float:
        """FLOPs of a whole adaptation, with its alignment."""
        return float(record["flops"][-1] + self.alignment_flops(record))

    def curve(self, record: Record, seconds: bool = False) -> LearningCurve | None:
        """Return scores over FLOPs, or seconds; None of what is judged before and after the adaptation only."""
        if not has_curve(record, self._task):
            return None
        own = record["alignment_s"] if seconds else self.alignment_flops(record)
        spent = (cost + own for cost in record["elapsed_s" if seconds else "flops"])
        # The clock may not tell two checkpoints apart.
        last_by_cost = dict(zip(spent, record["scores"][self._task], strict=True))
        return LearningCurve.of("", last_by_cost.items())

    def reached(self, record: Record) -> float | None:
        """FLOPs to the near-maximal score, infinite if it was not reached; None where it is not known."""
        reference, curve = self._reference(record), self.curve(record)
        if reference is None or curve is None or self._task not in reference["scores"]:
            return None
        return curve.reach(near_maximal(reference["scores"][self._task][-1])).estimate

    def reached_by_updates(self, record: Record) -> float | None:
        """FLOPs to the near-maximal score as `reached`; 0 where it is there before any update."""
        spent = self.reached(record)
        return 0.0 if spent == self.alignment_flops(record) else spent

    def times_less(self, record: Record) -> float | None:
        """How many times less that is than what standard adaptation spent until there.

        0 where it was not reached; None where it is not known, or one of them spent nothing. Where each start is
        compared with itself, an alignment alone counts as nothing: it was paid by seconds of a clock.
        """
        spent, theirs = self._both(self.reached if self._start else self.reached_by_updates, record)
        return theirs / spent if spent and theirs else None

    def times_less_than_whole(self, record: Record) -> float | None:
        """How many times less that is than what standard adaptation spends until its end."""
        spent, reference = self.reached(record), self._reference(record)
        return float(reference["flops"][-1] / spent) if spent and reference else None

    def _reference(self, record: Record) -> Record | None:
        return self._references.get((self._start or record["start"], record["seed"]))

    def _both(self, spent: Callable[[Record], float | None], record: Record) -> tuple[float | None, float | None]:
        """FLOPs of a record and of its reference."""
        reference = self._reference(record)
        return spent(record), spent(reference) if reference else None


def reference_start(records: Sequence[Record]) -> Start | None:
    """Return the start that all are compared with: the paper's, if BL_BASE has it; None: each start with itself."""
    starts = {record["start"] for record in records if record["system"] == System.BL_BASE}
    return Start.OVERLAP if Start.OVERLAP in starts else None


def is_fitted(record: Record) -> bool:
    """Return whether rows should have been aligned, but could not be, and are fitted."""
    return not record.get("quality", {}).get("succeeded", True)


def without_depths(records: Sequence[Record]) -> list[Record]:
    """Return the records of all systems, but for MINIJOINT's further depths."""
    return [record for record in records if not is_over_further_depth(record["system"])]


def by_depth(records: Sequence[Record]) -> list[Record]:
    """Return the records of MINIJOINT at all depths and of BL_BASE, where there are further depths (figure 4)."""

    def place(record: Record) -> tuple[str, str, int]:
        return record["start"], record["language"], record["seed"]

    places = {place(record) for record in records if is_over_further_depth(record["system"])}
    return [
        record
        for record in records
        if place(record) in places
        and (record["system"] in (System.BL_BASE, System.MINIJOINT) or is_over_further_depth(record["system"]))
    ]


def has_curve(record: Record, task: str) -> bool:
    """Return whether a task was judged at checkpoints between the ends of the adaptation, too."""
    return _ENDS < len(record["scores"].get(task, ())) == len(record["steps"])


def tasks_with_curves(records: Sequence[Record]) -> list[str]:
    """Return the tasks that were judged at every checkpoint, not before and after adaptation only."""
    return [*dict.fromkeys(task for one in records for task in one["scores"] if has_curve(one, task))]
