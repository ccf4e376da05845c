"""Compute that an adaptation spent until it was near-maximal, with that of its alignment."""

from collections.abc import Sequence
from typing import Any

from benchmarks.initialisation.arms import Start
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import LearningCurve, near_maximal, speed_up

_REFERENCE = (Start.OVERLAP, System.BL_BASE)
NAMES = {
    Start.OVERLAP: "`overlap`",
    Start.FITTED: "`fitted`",
    Start.TEXT: "`aligned`, text alone",
    Start.DICTIONARY: "`aligned`, dictionary",
    Start.PAIRS: "`aligned`, sentence pairs",
}
"""Starts as pages name them."""

Record = dict[str, Any]


class Costs:
    """Compute that each record's adaptation spent until it was near-maximal, the alignment's included.

    Args:
        records: of one language.
        task: that decides.
    """

    def __init__(self, records: Sequence[Record], task: str) -> None:
        self._task = task
        self._references = {
            record["seed"]: record
            for record in records
            if (record["start"], record["system"]) == _REFERENCE and task in record["scores"]
        }

    def alignment_flops(self, record: Record) -> float:
        """Charge the alignment's seconds at the rate at which standard adaptation spent FLOPs in its seconds."""
        measured = self._references.get(record["seed"], record)
        # Of a training that is over within the clock's resolution there is no rate.
        seconds = measured["elapsed_s"][-1]
        return float(record["alignment_s"] * measured["flops"][-1] / seconds) if seconds else 0.0

    def reached(self, record: Record) -> float | None:
        """FLOPs to the near-maximal score, infinite if it was not reached; None where it is not known.

        It is not known of what is judged before and after the adaptation only, as masked tokens and alignment are.
        """
        reference, scores = self._references.get(record["seed"]), record["scores"].get(self._task, ())
        if reference is None or len(scores) != len(record["flops"]):
            return None
        own = self.alignment_flops(record)
        curve = LearningCurve.of("", zip((flops + own for flops in record["flops"]), scores, strict=True))
        return curve.reach(near_maximal(reference["scores"][self._task][-1])).estimate

    def times_less(self, record: Record) -> float | None:
        """How many times less that is than what standard adaptation from `overlap` spent until there.

        0 where it was not reached; None where it is not known.
        """
        spent, theirs = self._both_reached(record)
        return None if theirs is None or not spent else theirs / spent

    def speed_up(self, record: Record) -> float | str | None:
        """Return how many times less that is, or why there is no such number; None where it is not known."""
        spent, theirs = self._both_reached(record)
        return None if spent is None or theirs is None else speed_up(spent, theirs)

    def times_less_than_whole(self, record: Record) -> float | None:
        """How many times less that is than what standard adaptation from `overlap` spends until its end."""
        spent, reference = self.reached(record), self._references.get(record["seed"])
        return float(reference["flops"][-1] / spent) if spent and reference else None

    def _both_reached(self, record: Record) -> tuple[float | None, float | None]:
        """FLOPs to the near-maximal score, of a record and of its reference."""
        reference = self._references.get(record["seed"])
        return self.reached(record), self.reached(reference) if reference else None
