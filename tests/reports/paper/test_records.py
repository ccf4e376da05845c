"""Records that do not fit each other are refused, each with what is wrong and how to mend it."""

import math
from typing import Any

import pytest

from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.reports.paper.efficiency import CurveError
from lingraft.reports.paper.records import Cell, PaperRecords
from lingraft.reports.paper.results_table import COMPUTE, MissingValue, ResultsTable, TargetRule
from lingraft.stages.results import SeedScores
from tests.reports.paper.made_up import MadeUp

BASE, SMALL, JOINT, POST = System.BL_BASE, System.BL_SMALL, System.MINIJOINT, System.MINIPOST


def with_cell(records: PaperRecords, cell: Cell) -> PaperRecords:
    return records.model_copy(update={"cells": (*records.cells, cell)})


def with_points(cell: Cell, *changes: dict[str, Any]) -> Cell:
    """A cell of as many checkpoints as changes are given."""
    points = [point.model_copy(update=change) for point, change in zip(cell.points, changes, strict=False)]
    return cell.model_copy(update={"points": tuple(points)})


def test_a_whole_run_is_accepted(made_up: MadeUp) -> None:
    records = made_up.records()
    assert records.checked() is records


def test_a_cell_given_twice_is_refused(made_up: MadeUp) -> None:
    records = with_cell(made_up.records(), made_up.cell(BASE, 12, "de"))
    with pytest.raises(ArtifactError, match=r"more than one cell for \['BL_BASE over 12 layers, de, xnli, .*Keep one"):
        records.checked()


def test_a_cell_outside_the_plan_is_refused(made_up: MadeUp) -> None:
    records = made_up.records(systems=(BASE, SMALL, JOINT))
    with pytest.raises(ArtifactError, match=r"MINIPOST over 4 layers, .* is of a system or task that"):
        records.checked()
    with pytest.raises(ArtifactError, match=r"of a language that paws-x is not judged in: \['de', 'zh'\]"):
        with_cell(made_up.records(), made_up.cell(BASE, 12, "ar", "paws-x")).checked()
    with pytest.raises(ArtifactError, match="BL_BASE adapts over all 12 layers"):
        with_cell(made_up.records(), made_up.cell(BASE, 4, "ar")).checked()


def test_a_curve_that_is_empty_is_refused_unless_the_run_failed(made_up: MadeUp) -> None:
    empty = made_up.cell(BASE, 12, "de", points=())
    with pytest.raises(CurveError, match="'BL_BASE over 12 layers, de, xnli, pretraining seed 1' has no checkpoint"):
        ResultsTable(made_up.records(empty))
    ResultsTable(made_up.records(made_up.failed(BASE, 12, "de")))


@pytest.mark.parametrize("count", ["step", "flops", "elapsed_s"])
def test_a_curve_that_is_not_sorted_is_refused_by_each_of_its_counts(made_up: MadeUp, count: str) -> None:
    cell = with_points(made_up.cell(BASE, 12, "de"), {}, {count: 500}, {count: 100})
    with pytest.raises(CurveError, match="is not sorted: 100 comes after 500"):
        made_up.records(cell).checked()


@pytest.mark.parametrize("scores", [{}, {1: math.nan}, {1: 57.3}, {1: 0.5, 2: -0.1}])
def test_scores_that_are_no_shares_are_refused(made_up: MadeUp, scores: dict[int, float]) -> None:
    cell = with_points(made_up.cell(BASE, 12, "de"), {"scores": SeedScores(by_seed=scores)})
    with pytest.raises(ArtifactError, match=r"update 0 of BL_BASE .* Give one or more, each a share from 0 to 1"):
        made_up.records(cell).checked()


def test_finetuning_seeds_that_change_along_a_curve_are_refused(made_up: MadeUp) -> None:
    cell = with_points(made_up.cell(BASE, 12, "de"), {}, {"scores": SeedScores(by_seed={1: 0.5})})
    with pytest.raises(ArtifactError, match=r"change from \[1, 2, 3\] at update 0 to \[1\] at 12500. Evaluate all"):
        made_up.records(cell).checked()


def test_a_score_of_the_source_needs_scores_or_a_reason(made_up: MadeUp) -> None:
    for changes in ({"scores": None}, {"failed": "out of memory"}):
        records = made_up.records(source_cells=(made_up.source(BASE, 12, 0.8, **changes),))
        with pytest.raises(ArtifactError, match="BL_BASE over 12 layers in en must have either scores or the reason"):
            records.checked()
    twice = (made_up.source(BASE, 12, 0.8), made_up.source(BASE, 12, 0.7))
    with pytest.raises(ArtifactError, match="more than one score for"):
        made_up.records(source_cells=twice).checked()


def test_a_comparison_of_nothing_is_refused(made_up: MadeUp) -> None:
    with pytest.raises(ArtifactError, match="needs a system and a task or more"):
        made_up.records().model_copy(update={"tasks": (), "cells": ()}).checked()


def test_targets_are_those_of_bl_base_or_say_why_there_is_none(made_up: MadeUp) -> None:
    baselines = {"ar": 0.3, "de": 0.99}
    records = made_up.records(made_up.failed(BASE, 12, "tr"), tasks=[made_up.task("xnli", baselines=baselines)])
    grid, over_baseline = ResultsTable(records), TargetRule.OVER_BASELINE
    (task,) = grid.records.tasks
    end = made_up.cell(BASE, 12, "ar").points[-1].scores.mean
    assert grid.target(task, "ar") == pytest.approx(0.95 * end)
    assert grid.target(task, "ar", over_baseline) == pytest.approx(0.3 + 0.95 * (end - 0.3))
    assert grid.target(task, "de", over_baseline) == MissingValue("BL_BASE does not beat the trivial baseline")
    assert grid.target(task, "zh", over_baseline) == MissingValue("no trivial baseline is recorded")
    failed = MissingValue("no target, since BL_BASE has no final score (failed: out of memory)")
    assert grid.target(task, "tr") == failed


def test_a_run_that_failed_midway_counts_as_a_hole_though_it_has_a_curve(made_up: MadeUp) -> None:
    midway = made_up.cell(POST, 4, "de", failed="the node was lost")
    grid = ResultsTable(made_up.records(midway))
    task = grid.records.tasks[0]
    assert grid.final(grid.variant(POST), task, "de") == MissingValue("failed: the node was lost")
    assert grid.reached(grid.variant(POST), task, "de") == MissingValue("failed: the node was lost")
    assert grid.speed_up(grid.variant(POST), task).left_out == {"de": "failed: the node was lost"}
    assert grid.retained(grid.variant(POST), task).left_out == {"de": "failed: the node was lost"}


def test_compute_is_time_on_a_v100_of_30_tflops(made_up: MadeUp) -> None:
    assert COMPUTE.spent(made_up.cell(BASE, 12, "de").points[-1]) == pytest.approx(54.05e18 / 30e12)
