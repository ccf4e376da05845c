"""The gate's verdicts, each with numbers that a wrong rule would judge otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lingraft.artifacts.manifest import Cost
from lingraft.config.gate import Gate
from lingraft.errors import GateError
from lingraft.stages.results import (
    ALIGNMENT,
    ALIGNMENT_INITIAL,
    BM25,
    MASKED,
    MASKED_INITIAL,
    LanguageResult,
    MaskedScores,
    SeedScores,
    TaskScores,
    task_item,
)
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tracking import gate as gates
from lingraft.tracking.gate import Check, Evidence, all_passed, format_checks, refusal_reason

PRIMARY = "a1" * 32
BLOCKS, EXAMPLES, SEEDS, PAIRS = 400, 300, (1, 2), 500
PLACES = {"text": "t1", "blocks": "b1", "task-topic-1": "k1", "task-topic-2": "k2"}
BY_ALIGNMENT = Gate(metric="alignment")
BY_TOPIC = Gate(metric="topic")


def found(share: float, items: int, each: int = 1) -> ItemCounts:
    """The first items are found, to a share, so that two tallies of other shares differ in some items only."""
    return ItemCounts.of(np.where(np.arange(items) < share * items, each, 0), np.full(items, each))


def evidence(
    masked: float, topic: float = 0.6, initial: float = 0.05, alignment: float = 0.4, **changes: Any
) -> Evidence:
    items = {MASKED: found(masked, BLOCKS, 20), MASKED_INITIAL: found(initial, BLOCKS, 20)}
    items |= {task_item("topic", seed): found(topic, EXAMPLES) for seed in SEEDS}
    items |= {ALIGNMENT: found(alignment, PAIRS, 2), ALIGNMENT_INITIAL: found(0.5, PAIRS, 2)}
    score = SeedScores(by_seed=dict.fromkeys(SEEDS, topic))
    task = TaskScores(name="topic", metric="accuracy", labels=[], examples=1, truncated=0, baseline=0.3, score=score)
    result = LanguageResult(
        language="de",
        primary=changes.pop("judged_primary", PRIMARY),
        embeddings="e1",
        system="MINIJOINT",
        depth=1,
        layers=3,
        learned_over=2,
        vocabulary=10,
        overlap=1,
        masked=MaskedScores(mini=0.1, primary=masked, mini_initial=0.1, primary_initial=initial),
        tasks=(task,),
        cost=Cost(),
        whole_flops=1.0,
        history=[],
        precision="fp32",
    )
    usual = {"title": "version 1", "aligned_with": PRIMARY, "evaluated_on": PLACES, "parity": {"topic": 1e-6}}
    return Evidence(result=result, items=items, **usual | changes)


def judge(
    gate: Gate, primary: str, challenger: Evidence, champion: Evidence | None, tasks: Sequence[str] = ("topic",)
) -> list[Check]:
    return gates.check_challenger(gate, primary, challenger, champion, tasks)


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.passed]


def test_a_better_challenger_passes_every_check() -> None:
    checks = judge(Gate(), PRIMARY, evidence(0.20), evidence(0.15))
    assert [check.name for check in checks] == ["aligned", "parity", "masked", "task topic"]
    assert all_passed(checks)
    assert checks[2].numbers["estimate"] == pytest.approx(0.05)
    assert 0 < checks[2].numbers["lower"] < 0.05 < checks[2].numbers["upper"]


def test_a_gain_that_may_be_luck_is_no_gain_nor_are_worse_or_the_same_scores() -> None:
    checks = judge(Gate(), PRIMARY, evidence(0.205), evidence(0.20))
    assert checks[2].numbers["estimate"] > 0 >= checks[2].numbers["lower"]
    for found in (checks, *(judge(Gate(), PRIMARY, evidence(0.15), evidence(theirs)) for theirs in (0.20, 0.15))):
        assert failed(found) == ["masked"]


def test_the_margin_is_to_be_beaten_by_the_lower_end() -> None:
    ours, theirs = evidence(0.20), evidence(0.15)
    lower = judge(Gate(), PRIMARY, ours, theirs)[2].numbers["lower"]
    assert all_passed(judge(Gate(margin=lower - 1e-6), PRIMARY, ours, theirs))
    assert failed(judge(Gate(margin=lower), PRIMARY, ours, theirs)) == ["masked"]


def test_a_task_may_fall_by_its_tolerance_only() -> None:
    ours, theirs = evidence(0.20, topic=0.57), evidence(0.15, topic=0.60)
    checks = judge(Gate(), PRIMARY, ours, theirs)
    assert failed(checks) == ["task topic"]
    assert checks[3].numbers["estimate"] == pytest.approx(-0.03)
    assert all_passed(judge(Gate(tolerance=0.1), PRIMARY, ours, theirs))
    assert all_passed(judge(Gate(tolerances={"topic": 0.1}), PRIMARY, ours, theirs))
    assert failed(judge(Gate(tolerance=0.1, tolerances={"topic": 0.01}), PRIMARY, ours, theirs)) == ["task topic"]


def test_another_primary_is_named_on_either_side() -> None:
    for changes in ({"aligned_with": "b2" * 32}, {"judged_primary": "b2" * 32}, {"aligned_with": None}):
        checks = judge(Gate(), PRIMARY, evidence(0.2, **changes), None)
        assert failed(checks) == ["aligned"]
        assert "adapt it again" in refusal_reason(checks)


def test_judgements_of_other_items_are_not_compared() -> None:
    for name in ("blocks", "task-topic-2"):
        other = evidence(0.15, evaluated_on=PLACES | {name: "other"}, title="version 7")
        checks = judge(Gate(), PRIMARY, evidence(0.2), other)
        assert failed(checks) == ["comparable"]
        assert f"version 7, were not judged on the same items: {name} differ" in refusal_reason(checks)


def test_a_refusal_says_all_that_failed() -> None:
    checks = judge(Gate(), PRIMARY, evidence(0.1, topic=0.3, parity={"topic": 1.0}), evidence(0.15))
    assert failed(checks) == ["parity", "masked", "task topic"]
    assert refusal_reason(checks).count("must be above") == 2
    assert [line[:4] for line in format_checks(checks).splitlines()] == ["pass", "FAIL", "FAIL", "FAIL"]


def test_a_task_that_was_not_judged_cannot_decide() -> None:
    with pytest.raises(GateError, match=r"gate.metric is 'mood', but version 1 was judged on tasks \['topic'\]"):
        judge(Gate(metric="mood"), PRIMARY, evidence(0.2), None)


def test_other_pairs_make_judgements_unlike_where_alignment_decides_only() -> None:
    ours, theirs = (
        evidence(0.2 + by, alignment=0.4 + by, evaluated_on=PLACES | {"alignment": str(by)}) for by in (0.1, 0)
    )
    assert failed(judge(BY_ALIGNMENT, PRIMARY, ours, theirs)) == ["comparable"]
    assert all_passed(judge(Gate(), PRIMARY, ours, theirs))


@pytest.mark.parametrize(
    ("gate", "better", "worse", "named"),
    [
        (Gate(), {"masked": 0.15}, {"masked": 0.05}, "its untrained initialisation"),
        # Its own start is better aligned (0.5), as one from a dictionary may be before any update.
        (BY_ALIGNMENT, {"alignment": 0.2}, {"alignment": 1 / PAIRS}, "chance"),
        (BY_TOPIC, {"topic": 0.6}, {"topic": 0.3}, "the best trivial answer"),
    ],
    ids=["masked", "alignment", "topic"],
)
def test_a_first_version_must_beat_what_needs_no_training(
    gate: Gate, better: dict[str, float], worse: dict[str, float], named: str
) -> None:
    good = judge(gate, PRIMARY, evidence(**{"masked": 0.15, **better}), None)
    assert all_passed(good)
    assert [check.name for check in good] == ["aligned", "parity", gate.metric]
    checks = judge(gate, PRIMARY, evidence(**{"masked": 0.15, **worse}), None)
    assert failed(checks) == [gate.metric]
    assert f"beside {named}" in refusal_reason(checks)


@pytest.mark.parametrize("gate", [BY_ALIGNMENT, BY_TOPIC], ids=["alignment", "topic"])
def test_the_metric_that_the_gate_names_decides_whatever_the_masked_score(gate: Gate) -> None:
    better, worse = evidence(0.15, topic=0.70, alignment=0.4), evidence(0.30, topic=0.60, alignment=0.3)
    assert all_passed(judge(gate, PRIMARY, better, worse))
    assert failed(judge(Gate(), PRIMARY, better, worse)) == ["masked"]
    checks = judge(gate, PRIMARY, worse, better)
    assert gate.metric in failed(checks)
    assert checks[2].numbers["estimate"] == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("parity", "tasks", "unmet"),
    [
        ({}, (), []),
        ({"topic": 1e-6, "mood": 2e-4}, ("topic",), ["parity"]),
        ({"topic": float("nan")}, ("topic",), ["parity"]),
        ({"topic": 1e-6}, ("topic", "mood"), ["parity"]),
    ],
    ids=["no task", "far", "not a number", "unknown"],
)
def test_parity_must_be_known_and_hold_in_every_task(
    parity: dict[str, float], tasks: tuple[str, ...], unmet: list[str]
) -> None:
    assert failed(judge(Gate(), PRIMARY, evidence(0.2, parity=parity), None, tasks=tasks)) == unmet


@pytest.mark.parametrize(("gate", "item"), [(Gate(), MASKED), (BY_ALIGNMENT, ALIGNMENT)])
def test_evidence_that_was_not_kept_is_named(gate: Gate, item: str) -> None:
    old = evidence(0.1, title="version 7")
    old = replace(old, items={name: each for name, each in old.items.items() if name != item})
    with pytest.raises(GateError, match=f"the evaluation of version 7 keeps no '{item}'"):
        judge(gate, PRIMARY, evidence(0.2), old)


@pytest.mark.parametrize(("bm25", "passes", "beside"), [(0.2, True, "the best trivial answer"), (0.5, False, "BM25")])
def test_a_first_version_of_a_search_must_beat_the_best_of_its_baselines(
    bm25: float, passes: bool, beside: str
) -> None:
    first = evidence(0.2, topic=0.45)
    (task,) = first.result.tasks
    judged = task.model_copy(update={"baselines": {BM25: SeedScores(by_seed=dict.fromkeys(SEEDS, bm25))}})
    first = replace(first, result=first.result.model_copy(update={"tasks": (judged,)}))
    checks = judge(BY_TOPIC, PRIMARY, first, None)
    assert failed(checks) == ([] if passes else ["topic"])
    assert f"beside {beside}" in next(check.says for check in checks if check.name == "topic")
