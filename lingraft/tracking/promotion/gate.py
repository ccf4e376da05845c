"""The gate of embeddings: a challenger needs the right primary, parity, and scores to become champion.

The gate only computes on stored evidence: it trains and evaluates nothing. Embeddings were learned on a mini-model, and
evaluated on the primary.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

import pydantic

from lingraft.config.gate import ALIGNMENT_METRIC, MASKED_METRIC, PARITY_TOLERANCE, Gate
from lingraft.errors import GateError
from lingraft.stages.results import ALIGNMENT, MASKED, MASKED_INITIAL, LanguageResult, TaskScores, task_item
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tracking.promotion.bootstrap import Difference, difference


@dataclass(frozen=True)
class Evidence:
    """Evidence about a version of a language's embeddings."""

    title: str
    """Name of the version in messages, such as `version 3`."""
    aligned_with: str | None
    """Fingerprint of the primary that the embeddings were learned for."""
    result: LanguageResult
    items: Mapping[str, ItemCounts]
    evaluated_on: Mapping[str, str]
    """Fingerprints of the evaluation's other inputs: text, blocks, and each task's body."""
    parity: Mapping[str, float]
    """Largest difference of a logit between ONNX Runtime and PyTorch, by task."""


class Check(pydantic.BaseModel):
    """One condition of the gate, with its result."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    name: str
    passed: bool
    says: str
    """Result in a sentence."""
    numbers: dict[str, float] = {}


def check_challenger(
    gate: Gate, primary: str, challenger: Evidence, champion: Evidence | None, tasks: Collection[str]
) -> list[Check]:
    """Compare a challenger with the champion, or with an untrained baseline if there is no champion.

    Args:
        gate: margins, tolerances and intervals.
        primary: fingerprint of the project's current primary.
        challenger: evidence about the challenger, evaluated on that primary.
        champion: evidence about the champion of the same language and primary; None if there is none.
        tasks: names of the tasks that the registry has for that primary.
    """
    checks = [_aligned(primary, challenger), _parity(challenger, tasks)]
    metric = _Metric.of(gate, challenger)
    if champion is None:
        return [*checks, metric.above(metric.floor(challenger))]
    if unlike := _why_not_comparable(challenger, champion, gate):
        return [*checks, Check(name="comparable", passed=False, says=unlike)]
    reference = _Reference(f"the champion, {champion.title},", metric.tallies(champion))
    return [*checks, metric.above(reference), *_task_checks(gate, challenger, champion)]


def all_passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and all of them passed."""
    return bool(checks) and all(check.passed for check in checks)


def refusal_reason(checks: Sequence[Check]) -> str:
    """Return why a challenger was refused: the failed checks, in a line."""
    return " ".join(check.says for check in checks if not check.passed)


def format_checks(checks: Sequence[Check]) -> str:
    """Return a table with a line for each check."""
    return "\n".join(f"{'pass' if check.passed else 'FAIL'}  {check.name:<14} {check.says}" for check in checks)


def _aligned(primary: str, challenger: Evidence) -> Check:
    marks = {challenger.aligned_with, challenger.result.primary}
    fits = marks == {primary}
    said = f"learned for and judged on the primary {primary[:12]}"
    other = ", ".join(sorted(str(mark)[:12] for mark in marks))
    says = said if fits else f"{challenger.title} belongs to primary {other}, not to {primary[:12]}: adapt it again."
    return Check(name="aligned", passed=fits, says=says)


def _parity(challenger: Evidence, tasks: Collection[str]) -> Check:
    parity = challenger.parity
    if unknown := sorted(set(tasks) - set(parity)):
        says = (
            f"{challenger.title} has no parity of {', '.join(unknown)}, which the registry has for this primary. Run "
            "the language pipeline again with them in the recipe: it measures parity and adds it to the same version. "
            "If one is not to be served any more, delete its versions."
        )
        return Check(name="parity", passed=False, says=says, numbers=dict(parity))
    holds = all(found <= PARITY_TOLERANCE for found in parity.values())
    shown = ", ".join(f"{task} {found:.2g}" for task, found in parity.items()) or "there is no task"
    word = "within" if holds else "not within"
    says = f"ONNX Runtime and PyTorch agree {word} {PARITY_TOLERANCE:g} in every logit ({shown})"
    return Check(name="parity", passed=holds, says=says + ("" if holds else "."), numbers=dict(parity))


def _why_not_comparable(challenger: Evidence, champion: Evidence, gate: Gate) -> str | None:
    """Return why two evaluations cannot be paired, because their items differ; None if they can."""
    ours = challenger.evaluated_on
    theirs = champion.evaluated_on
    names = {*ours, *theirs} - (set() if gate.metric == ALIGNMENT_METRIC else {ALIGNMENT})
    unlike = sorted(name for name in names if ours.get(name) != theirs.get(name))
    if not unlike:
        return None
    return (
        f"{challenger.title} and the champion, {champion.title}, were not judged on the same items: "
        f"{', '.join(unlike)} differ. Judge the champion on the challenger's text, blocks and tasks "
        "(`lingraft registry pull`, `lingraft evaluate`, `lingraft registry judge`). If its tokenizer is another, that "
        "says nothing: adapt with the champion's, or take champions back (`lingraft registry rollback`) until there is "
        "none, so that the challenger counts as the first."
    )


class _Reference(NamedTuple):
    """Scores that a challenger must beat."""

    name: str
    tallies: list[ItemCounts]
    """Counts of each finetuning seed; a single one for metrics without finetuning."""


@dataclass(frozen=True)
class _Metric:
    """The deciding metric, and the challenger's counts of it."""

    gate: Gate
    title: str
    item_names: tuple[str, ...]
    """Names of its counts in an evaluation."""
    ours: list[ItemCounts]

    @classmethod
    def of(cls, gate: Gate, challenger: Evidence) -> "_Metric":
        """Find the gate's metric in the challenger's evaluation.

        Raises:
            GateError: the challenger was not evaluated by it.
        """
        names: tuple[str, ...]
        if gate.metric == MASKED_METRIC:
            title = "masked accuracy on the primary"
            names = (MASKED,)
        elif gate.metric == ALIGNMENT_METRIC:
            title = "retrieval of counterparts in the source language"
            names = (ALIGNMENT,)
        else:
            task = _task(challenger, gate)
            title = f"zero-shot {task.metric} on {task.name}"
            names = tuple(task_item(task.name, seed) for seed in task.score.by_seed)
        return cls(gate, title, names, [_counts(challenger, name) for name in names])

    def tallies(self, evidence: Evidence) -> list[ItemCounts]:
        """Return another version's counts of this metric."""
        return [_counts(evidence, name) for name in self.item_names]

    def floor(self, challenger: Evidence) -> _Reference:
        """Return the baseline that a first version must beat, which needs no training in the language."""
        if self.gate.metric == MASKED_METRIC:
            return _Reference("its untrained initialisation", [_counts(challenger, MASKED_INITIAL)])
        if self.gate.metric == ALIGNMENT_METRIC:
            return _Reference("chance", [_constant_counts(tally, 1 / len(tally)) for tally in self.ours])
        baseline = _task(challenger, self.gate).baseline
        return _Reference("the best trivial answer", [_constant_counts(tally, baseline) for tally in self.ours])

    def above(self, reference: _Reference) -> Check:
        """Check that the challenger's score beats another by the gate's margin."""
        gate = self.gate
        found = difference(self.ours, reference.tallies, gate)
        score = mean(tally.score for tally in self.ours)
        beats = found.lower > gate.margin
        says = (
            f"{self.title} is {score:.2%}, {_in_points(found.estimate)} points beside {reference.name} "
            f"{_format_interval(gate, found)}; the lower end must be above {100 * gate.margin:.2f} points"
        )
        numbers = {"score": score, "margin": gate.margin, **found._asdict()}
        return Check(name=gate.metric, passed=beats, says=says + ("" if beats else "."), numbers=numbers)


def _task(challenger: Evidence, gate: Gate) -> TaskScores:
    scores = challenger.result.task_scores
    if gate.metric not in scores:
        raise GateError(
            f"gate.metric is {gate.metric!r}, but {challenger.title} was judged on tasks {sorted(scores)}. Name one of "
            f"them, {MASKED_METRIC!r} or {ALIGNMENT_METRIC!r}, or judge it on the task."
        )
    return scores[gate.metric]


def _constant_counts(tally: ItemCounts, share: float) -> ItemCounts:
    """Return counts of the same items, each with this share found."""
    return ItemCounts.of(share * tally.out_of_N, tally.out_of_N)


def _task_checks(gate: Gate, challenger: Evidence, champion: Evidence) -> Iterator[Check]:
    for task in champion.result.tasks:
        if task.name == gate.metric:
            continue
        pairs = [
            tuple(_counts(one, task_item(task.name, seed)) for one in (challenger, champion))
            for seed in task.score.by_seed
        ]
        found = difference([ours for ours, _ in pairs], [theirs for _, theirs in pairs], gate)
        tolerance = gate.tolerance_of(task.name)
        holds = found.lower > -tolerance
        says = (
            f"zero-shot {task.metric} on {task.name} is {_in_points(found.estimate)} points beside the champion "
            f"{_format_interval(gate, found)}; the lower end must be above {-100 * tolerance:.2f} points"
        )
        numbers = {"tolerance": tolerance, **found._asdict()}
        yield Check(name=f"task {task.name}", passed=holds, says=says + ("" if holds else "."), numbers=numbers)


def _format_interval(gate: Gate, found: Difference) -> str:
    return f"({gate.confidence:.0%} interval {_in_points(found.lower)} to {_in_points(found.upper)} points)"


def _in_points(difference: float) -> str:
    """Format a difference of two shares in percentage points."""
    return f"{100 * difference:+.2f}"


def _counts(evidence: Evidence, item: str) -> ItemCounts:
    if item not in evidence.items:
        raise GateError(
            f"the evaluation of {evidence.title} keeps no {item!r}, only {sorted(evidence.items)}. Judge it again."
        )
    return evidence.items[item]
