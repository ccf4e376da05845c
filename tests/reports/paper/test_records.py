"""Numbers that are looked up in the records of a comparison: targets, holes, costs."""

import pytest

from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.reports.paper.results_table import COMPUTE, MissingValue, ResultsTable, TargetRule
from tests.reports.paper.made_up import MadeUp

BASE, POST = System.BL_BASE, System.MINIPOST


def test_a_cell_given_twice_is_refused(made_up: MadeUp) -> None:
    records = made_up.records()
    twice = records.model_copy(update={"cells": (*records.cells, made_up.cell(BASE, 12, "de"))})
    with pytest.raises(ArtifactError, match=r"more than one cell for BL_BASE over 12 layers, de, xnli, .*Keep one"):
        ResultsTable(twice)


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
    task, variant = grid.records.tasks[0], grid.variant(POST)
    lost = MissingValue("failed: the node was lost")
    assert grid.final(variant, task, "de") == grid.reached(variant, task, "de") == lost
    assert grid.speed_up(variant, task).left_out == grid.retained(variant, task).left_out == {"de": lost.reason}


def test_compute_is_time_on_a_v100_of_30_tflops(made_up: MadeUp) -> None:
    assert COMPUTE.spent(made_up.cell(BASE, 12, "de").points[-1]) == pytest.approx(54.05e18 / 30e12)
