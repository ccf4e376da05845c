"""The first sentences of the paper's comparison: each half says what is there, or why it is not."""

import pytest

from lingraft.config.systems import System
from lingraft.reports.paper.records import Cell
from lingraft.reports.paper.results_table import ResultsTable
from lingraft.reports.paper.summary import summary
from tests.reports.paper.made_up import MadeUp

BASE, JOINT = System.BL_BASE, System.MINIJOINT


def about(system: System, grid: ResultsTable) -> str:
    (sentence,) = (line for line in summary(grid) if line.startswith(f"{system}:"))
    return sentence


def weak(made_up: MadeUp, language: str) -> Cell:
    """A run that ends before it is near its target."""
    whole = made_up.cell(JOINT, 4, language)
    return whole.model_copy(update={"points": whole.points[:2]})


def test_both_halves_have_their_numbers(made_up: MadeUp) -> None:
    sentence = about(JOINT, ResultsTable(made_up.records(tasks=[made_up.task("xnli")])))
    assert "a speed-up of 2.09× over BL_BASE" in sentence
    assert sentence.endswith("% of BL_BASE's score at the end (XNLI: 4 of 4 languages).")


def test_without_a_speed_up_what_is_kept_is_still_said(made_up: MadeUp) -> None:
    xnli = made_up.task("xnli", ("ar", "de"))
    sentence = about(JOINT, ResultsTable(made_up.records(weak(made_up, "ar"), weak(made_up, "de"), tasks=[xnli])))
    assert "no speed-up over BL_BASE" in sentence
    assert "(XNLI: never reached 95% of BL_BASE in 2 of 2 languages)" in sentence
    assert sentence.endswith("% of BL_BASE's score at the end (XNLI: 2 of 2 languages).")
    assert "no language has a number" not in sentence


def test_a_target_reached_only_where_it_says_nothing_is_called_that(made_up: MadeUp) -> None:
    xnli = made_up.task("xnli", ("ar", "tr"), baselines={"ar": 0.34, "tr": 0.6})
    sentence = about(JOINT, ResultsTable(made_up.records(weak(made_up, "ar"), tasks=[xnli])))
    assert (
        "(XNLI: reached 95% of BL_BASE only in languages that are not informative (tr), "
        "never reached 95% of BL_BASE in 1 of 2 languages)"
    ) in sentence
    assert sentence.endswith("% of BL_BASE's score at the end (XNLI: 1 of 2 languages).")


@pytest.mark.parametrize("system", [JOINT, System.MINIPOST])
def test_a_speed_up_is_said_of_each_task_and_a_failure_in_its_first_words(made_up: MadeUp, system: System) -> None:
    tasks = [made_up.task("xnli", ("ar",)), made_up.task("paws-x", ("de",))]
    dead = [
        made_up.failed(system, 4, lang, task, "no memory. Buy more")
        for lang, task in (("ar", "xnli"), ("de", "paws-x"))
    ]
    sentence = about(system, ResultsTable(made_up.records(*dead, tasks=tasks)))
    reasons = "(XNLI: failed: no memory in 1 of 1 language; PAWS-X: failed: no memory in 1 of 1 language)"
    assert sentence.count(reasons) == 2
    assert "no share of BL_BASE's score at the end" in sentence


def test_nothing_informative_leaves_no_share_either(made_up: MadeUp) -> None:
    xnli = made_up.task("xnli", ("ar",), baselines={"ar": 0.54})
    sentence = about(JOINT, ResultsTable(made_up.records(tasks=[xnli])))
    assert "only in languages that are not informative (ar))" in sentence
    assert sentence.endswith("no share of BL_BASE's score at the end (XNLI: not informative in 1 of 1 language).")
