"""The gate of embeddings: a challenger needs the right primary, parity, and scores to become champion.

The gate only computes on stored evidence: it trains and evaluates nothing. Embeddings were learned on a mini-model, and
evaluated on the primary. Scores are compared by a paired bootstrap, the interval of the difference between two
evaluations of the same items.

Legend: R resamples, N items, S finetuning seeds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

import numpy as np
import pydantic
from numpy.typing import NDArray

from lingraft.config.gate import ALIGNMENT_METRIC, MASKED_METRIC, PARITY_TOLERANCE, Gate
from lingraft.errors import GateError
from lingraft.stages.results import (
    ALIGNMENT,
    MASKED,
    MASKED_INITIAL,
    LanguageResult,
    TaskScores,
    metric_label,
    task_item,
)
from lingraft.tasks.item_counts import ItemCounts

_CELLS_AT_ONCE = 1 << 22
"""Largest number of cells of the table of resamples and items in memory: 32 MB."""


class Difference(NamedTuple):
    """Difference of two scores (ours minus theirs, as shares), with the ends of its interval."""

    estimate: float
    lower: float
    upper: float


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

    def counts(self, item: str) -> ItemCounts:
        """Return the counts of an item of the evaluation."""
        if item not in self.items:
            raise GateError(
                f"the evaluation of {self.title} keeps no {item!r}, only {sorted(self.items)}. Judge it again."
            )
        return self.items[item]


class Check(pydantic.BaseModel):
    """One condition of the gate, with its result."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    name: str
    passed: bool
    says: str
    """Sentence that states the result."""
    numbers: dict[str, float] = {}


def check_challenger(
    gate: Gate, primary: str, challenger: Evidence, champion: Evidence | None, tasks: Collection[str]
) -> list[Check]:
    """Compare a challenger with the champion, or with an untrained baseline if there is no champion.

    Args:
        champion: evidence about the champion of the same language and primary.
        tasks: names of the tasks that the registry has for that primary.
    """
    checks = [_aligned(primary, challenger), check_parity(challenger.title, challenger.parity, tasks)]
    if champion and (reason := _why_not_comparable(challenger, champion, gate)):
        return [*checks, Check(name="comparable", passed=False, says=reason)]
    title, items = _metric(gate, challenger)
    ours = [challenger.counts(item) for item in items]
    if champion is None:
        return [*checks, _metric_check(gate, title, ours, *_baseline(gate, challenger, ours))]
    theirs = [champion.counts(item) for item in items]
    metric = _metric_check(gate, title, ours, f"the champion, {champion.title},", theirs)
    return [*checks, metric, *_task_checks(gate, challenger, champion)]


def all_passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and all of them passed."""
    return bool(checks) and all(check.passed for check in checks)


def refusal_reason(checks: Iterable[Check]) -> str:
    """Return why a challenger was refused: the failed checks, in a line."""
    return sentences(check for check in checks if not check.passed)


def sentences(checks: Iterable[Check]) -> str:
    """Return the results of checks in a line."""
    return " ".join(f"{check.says.removesuffix('.')}." for check in checks)


def format_checks(checks: Sequence[Check]) -> str:
    """Return a table with a line for each check."""
    return "\n".join(f"{'pass' if check.passed else 'FAIL'}  {check.name:<14} {check.says}" for check in checks)


def _aligned(primary: str, challenger: Evidence) -> Check:
    primaries = {challenger.aligned_with, challenger.result.primary}
    says = f"learned for and judged on the primary {primary[:12]}"
    if passed := primaries == {primary}:
        return Check(name="aligned", passed=passed, says=says)
    other = ", ".join(sorted(str(each)[:12] for each in primaries))
    says = f"{challenger.title} belongs to primary {other}, not to {primary[:12]}: adapt it again"
    return Check(name="aligned", passed=passed, says=says)


def check_parity(title: str, parity: Mapping[str, float], wanted: Collection[str]) -> Check:
    """Check that ONNX Runtime and PyTorch agree in all tasks, or languages, that are wanted."""
    numbers = dict(parity)
    measured = ", ".join(f"{name} {found:.2g}" for name, found in parity.items()) or "there is no task"
    says = f"ONNX Runtime and PyTorch agree within {PARITY_TOLERANCE:g} in every logit ({measured})"
    if unknown := sorted({*wanted} - {*parity}):
        says = (
            f"{title} has no parity of {', '.join(unknown)}, which is served with it. Run the language pipeline again "
            "with that in the recipe: it measures parity and adds it to the same version"
        )
    elif far := [name for name, found in parity.items() if not found <= PARITY_TOLERANCE]:
        says = f"{title} does not agree with PyTorch within {PARITY_TOLERANCE:g} in {', '.join(far)} ({measured})"
    else:
        return Check(name="parity", passed=True, says=says, numbers=numbers)
    return Check(name="parity", passed=False, says=says, numbers=numbers)


def _why_not_comparable(challenger: Evidence, champion: Evidence, gate: Gate) -> str | None:
    """Return why two evaluations cannot be paired, because their items differ; None if they can."""
    ours = challenger.evaluated_on
    theirs = champion.evaluated_on
    names = {*ours, *theirs} - (set() if gate.metric == ALIGNMENT_METRIC else {ALIGNMENT})
    different = sorted(name for name in names if ours.get(name) != theirs.get(name))
    if not different:
        return None
    return (
        f"{challenger.title} and the champion, {champion.title}, were not judged on the same items: "
        f"{', '.join(different)} differ. Judge the champion on the challenger's text, blocks and tasks "
        "(`lingraft registry pull`, `lingraft evaluate`), and give the result to `lingraft registry promote "
        "--champion-evaluation`. If its tokenizer is another, that says nothing: adapt with the champion's, or delete "
        "the alias 'champion' on MLflow's page, so that the challenger counts as the first"
    )


def _metric(gate: Gate, challenger: Evidence) -> tuple[str, list[str]]:
    """Return the deciding metric's title and items: one item, or one for each finetuning seed of a task."""
    if gate.metric == MASKED_METRIC:
        return "masked accuracy on the primary", [MASKED]
    if gate.metric == ALIGNMENT_METRIC:
        return "retrieval of counterparts in the source language", [ALIGNMENT]
    task = _deciding_task(gate, challenger)
    return f"zero-shot {task.metric} on {task.name}", [task_item(task.name, seed) for seed in task.score.by_seed]


def _baseline(gate: Gate, challenger: Evidence, ours: Sequence[ItemCounts]) -> tuple[str, list[ItemCounts]]:
    """Return name and counts of what a first version must beat, which needs no training in the language."""
    if gate.metric == MASKED_METRIC:
        return "its untrained initialisation", [challenger.counts(MASKED_INITIAL)]
    if gate.metric == ALIGNMENT_METRIC:
        return "chance", [ItemCounts.of(each.out_of_N / len(each), each.out_of_N) for each in ours]
    task = _deciding_task(gate, challenger)
    shares = {"the best trivial answer": task.baseline}
    shares |= {metric_label(name): found.mean for name, found in task.baselines.items()}
    best = max(shares, key=shares.__getitem__)
    return best, [ItemCounts.of(shares[best] * each.out_of_N, each.out_of_N) for each in ours]


def _deciding_task(gate: Gate, challenger: Evidence) -> TaskScores:
    scores = challenger.result.task_scores
    if gate.metric not in scores:
        raise GateError(
            f"gate.metric is {gate.metric!r}, but {challenger.title} was judged on tasks {sorted(scores)}. Name one of "
            f"them, {MASKED_METRIC!r} or {ALIGNMENT_METRIC!r}, or judge it on the task."
        )
    return scores[gate.metric]


def _metric_check(
    gate: Gate, title: str, ours: Sequence[ItemCounts], reference: str, theirs: Sequence[ItemCounts]
) -> Check:
    """Check that the challenger's score beats that of a reference by the gate's margin."""
    score = mean(each.score for each in ours)
    found = difference(ours, theirs, gate)
    says = (
        f"{title} is {score:.2%}, {_in_points(found.estimate)} points beside {reference} "
        f"{_format_interval(gate, found)}; the lower end must be above {100 * gate.margin:.2f} points"
    )
    numbers = {"score": score, "margin": gate.margin, **found._asdict()}
    return Check(name=gate.metric, passed=found.lower > gate.margin, says=says, numbers=numbers)


def _task_checks(gate: Gate, challenger: Evidence, champion: Evidence) -> Iterator[Check]:
    for task in champion.result.tasks:
        if task.name == gate.metric:
            continue
        items = [task_item(task.name, seed) for seed in task.score.by_seed]
        found = difference([challenger.counts(item) for item in items], [champion.counts(item) for item in items], gate)
        tolerance = gate.tolerance_of(task.name)
        holds = found.lower > -tolerance
        says = (
            f"zero-shot {task.metric} on {task.name} is {_in_points(found.estimate)} points beside the champion "
            f"{_format_interval(gate, found)}; the lower end must be above {-100 * tolerance:.2f} points"
        )
        numbers = {"tolerance": tolerance, **found._asdict()}
        yield Check(name=f"task {task.name}", passed=holds, says=says, numbers=numbers)


def _format_interval(gate: Gate, found: Difference) -> str:
    return f"({gate.confidence:.0%} interval {_in_points(found.lower)} to {_in_points(found.upper)} points)"


def _in_points(difference: float) -> str:
    return f"{100 * difference:+.2f}"


def difference(ours: Sequence[ItemCounts], theirs: Sequence[ItemCounts], gate: Gate) -> Difference:
    """Return the difference of two scores, each the mean over seeds of the share found in all items, with its interval.

    Every resample draws N items with replacement, the same ones for both sides. The interval's ends are percentiles of
    the resamples' differences.
    """
    counts = {len(tally) for tally in (*ours, *theirs)}
    if len(counts) != 1 or not min(counts):
        raise GateError(f"tallies of {sorted(counts)} items cannot be paired. Judge both on the same, non-empty text.")
    [items] = counts
    generator = np.random.default_rng(gate.seed)
    rows = max(1, _CELLS_AT_ONCE // items)
    parts = [min(rows, gate.resamples - start) for start in range(0, gate.resamples, rows)]
    draws = (generator.multinomial(items, np.full(items, 1 / items), size) for size in parts)
    differences_R = np.concatenate([_scores(ours, times_RN) - _scores(theirs, times_RN) for times_RN in draws])
    tail = (1 - gate.confidence) / 2
    lower, upper = np.quantile(differences_R, [tail, 1 - tail])
    once_1N = np.ones((1, items))
    return Difference(float((_scores(ours, once_1N) - _scores(theirs, once_1N))[0]), float(lower), float(upper))


def _scores(tallies: Sequence[ItemCounts], times_RN: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    found_RS = times_RN @ np.stack([tally.found_N for tally in tallies], axis=1)
    out_of_RS = times_RN @ np.stack([tally.out_of_N for tally in tallies], axis=1)
    shares_RS = np.divide(found_RS, out_of_RS, out=np.zeros_like(found_RS), where=out_of_RS > 0)
    return np.asarray(shares_RS.mean(axis=1), np.float64)
