"""The first sentences of the paper's comparison: each half says what is there, or why it is not."""

import pytest

from lingraft.config.systems import System
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.results_table import ResultsTable
from lingraft.reports.paper.summary import summary
from tests.reports.paper.made_up import MadeUp

JOINT = System.MINIJOINT


def about(system: System, records: PaperRecords) -> str:
    (sentence,) = (line for line in summary(ResultsTable(records)) if line.startswith(f"{system}:"))
    return sentence


def test_both_halves_have_their_numbers(made_up: MadeUp) -> None:
    sentence = about(JOINT, made_up.records(tasks=[made_up.task("xnli")]))
    assert "a speed-up of 2.09× over BL_BASE" in sentence
    assert sentence.endswith("% of BL_BASE's score at the end (XNLI: 4 of 4 languages).")


def test_without_a_speed_up_what_is_kept_is_still_said(made_up: MadeUp) -> None:
    xnli = made_up.task("xnli", ("ar", "tr"), baselines={"ar": 0.34, "tr": 0.6})
    whole = made_up.cell(JOINT, 4, "ar")
    weak = whole.model_copy(update={"points": whole.points[:2]})  # it ends before it is near its target
    sentence = about(JOINT, made_up.records(weak, tasks=[xnli]))
    assert "no speed-up over BL_BASE" in sentence
    assert "(XNLI: never reached in 1 of 2 languages, not informative in 1 of 2 languages)" in sentence
    assert sentence.endswith("% of BL_BASE's score at the end (XNLI: 1 of 2 languages).")


@pytest.mark.parametrize("system", [JOINT, System.MINIPOST])
def test_a_failure_is_said_of_each_task_in_its_first_words(made_up: MadeUp, system: System) -> None:
    tasks = [made_up.task("xnli", ("ar",)), made_up.task("paws-x", ("de",))]
    dead = [
        made_up.failed(system, 4, lang, task, "no memory. Buy more")
        for lang, task in (("ar", "xnli"), ("de", "paws-x"))
    ]
    sentence = about(system, made_up.records(*dead, tasks=tasks))
    reasons = "(XNLI: failed: no memory in 1 of 1 language; PAWS-X: failed: no memory in 1 of 1 language)"
    assert sentence.count(reasons) == 2
    assert "no share of BL_BASE's score at the end" in sentence
