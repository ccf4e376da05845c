"""Tables as text: what the paper prints comes out of records that hold it, and what is missing is marked."""

import pytest

from lingraft.config.systems import System
from lingraft.reports.paper.cost_tables import (
    retained_table,
    speed_up_table,
    spent_table,
    target_time_by_depth,
    target_time_table,
)
from lingraft.reports.paper.published import DAYS, SCORES
from lingraft.reports.paper.report_table import ReportTable
from lingraft.reports.paper.results_table import MEASURED_SECONDS, ResultsTable, TargetRule
from lingraft.reports.paper.score_tables import (
    failures_table,
    final_by_depth,
    final_table,
    languages_table,
    pretraining_table,
    source_table,
)
from lingraft.stages.results import SeedScores
from tests.reports.paper import printed
from tests.reports.paper.made_up import MadeUp

BASE, SMALL, JOINT, POST = System.BL_BASE, System.BL_SMALL, System.MINIJOINT, System.MINIPOST


@pytest.fixture(scope="module")
def paper() -> ResultsTable:
    """The paper's own numbers."""
    return ResultsTable(printed.records())


def rows(table: ReportTable) -> dict[str, tuple[str, ...]]:
    return {row.label: row.cells for row in table.rows}


def near(grid: ResultsTable, task: int = 0, **options: object) -> ReportTable:
    return target_time_table(grid, grid.records.tasks[task], "Table 3", grid.variants, **options)


def test_table_2_prints_the_paper_s_scores_and_averages(paper: ResultsTable) -> None:
    for task in paper.records.tasks:
        found = rows(final_table(paper, task))
        for system, average in printed.AVERAGE_SCORES[task.name].items():
            assert found[system][:-1] == tuple(f"{score:.1f}" for score in SCORES[task.name].rows[system])
            assert float(found[system][-1]) == pytest.approx(average, abs=0.11)  # two roundings to 0.1


def test_tables_3_and_a1_print_the_paper_s_days_and_its_infinity(paper: ResultsTable) -> None:
    for place, task in enumerate(paper.records.tasks):
        table = near(paper, place)
        assert table.title.startswith(f"{task.title}, V100-days until 95%")
        found = rows(table)
        for system in DAYS[task.name].rows:
            expected = ["∞" if days == float("inf") else f"{days:.1f}" for days in DAYS[task.name].rows[system]]
            assert list(found[system][:-1]) == expected
    assert found[JOINT][-1] == "0.9 (9 of 10)"
    assert found[SMALL] == ("∞",) * 10 + ("–",)
    assert "∞: never reached; left out of means." in table.notes


def test_the_speed_ups_are_those_computed_from_the_paper_s_days(paper: ResultsTable) -> None:
    (table,) = speed_up_table(paper)
    found = rows(table)
    assert table.head == ("system", "XNLI", "MLQA", "PAWS-X", "XQuAD", "mean of tasks")
    assert found["MINIJOINT, compute"] == ("2.08×", "1.91×", "3.25×", "2.52× (9 of 10)", "2.41×")
    assert found["MINIPOST, compute"] == ("1.43×", "1.56×", "2.02×", "1.71×", "1.67×")
    assert found["MINIJOINT in the paper"] == found["MINIJOINT, compute"] == found["MINIJOINT, seconds measured"]
    assert any("Left out on XQuAD: tr (never reached)" in note for note in table.notes)


def test_what_is_retained_is_what_the_paper_says(paper: ResultsTable) -> None:
    (table,) = retained_table(paper)
    found = rows(table)
    assert (found["MINIJOINT"][-1], found["MINIPOST"][-1]) == ("98.7%", "99.3%")
    assert found["MINIPOST"] == found["MINIPOST in the paper"]


def test_the_cost_of_a_whole_adaptation_stands_beside_table_2(paper: ResultsTable) -> None:
    found = rows(spent_table(paper))
    assert found[BASE] == ("12", "125,000", "54.2 EFLOP", "20.9", "20.9")
    assert found[JOINT] == ("4", "125,000", "21.0 EFLOP", "8.1", "8.1")


def test_a_failed_cell_is_a_hole_with_its_reason_and_the_mean_says_over_how_many(made_up: MadeUp) -> None:
    failed = made_up.failed(POST, 4, "de", why="loss is nan at update 300.")
    grid = ResultsTable(made_up.records(failed, without=[(JOINT, 4, "ar", "xnli")]))
    table = final_table(grid, grid.records.tasks[0])
    assert rows(table)[POST] == ("54.2", "–¹", "60.2", "63.1", "59.2 (3 of 4)")
    assert rows(table)[BASE][-1] == "59.4"
    assert rows(table)[JOINT][0] == "–²"
    assert table.notes[-2:] == ("–¹: failed: loss is nan at update 300.", "–²: not run.")
    assert rows(near(grid))[POST][1] == "–¹"


def test_a_reason_has_one_number_in_all_tables_and_stands_there_in_short(made_up: MadeUp) -> None:
    why = f"ArtifactError: {'long ' * 60}path is damaged. Make it\nagain"
    records = made_up.records(made_up.failed(POST, 4, "de"), made_up.failed(SMALL, 4, "zh", why=why))
    grid = ResultsTable(records)
    first, second = final_table(grid, grid.records.tasks[0]), near(grid)
    assert [rows(table)[POST][1] for table in (first, second)] == ["–²", "–²"]
    assert [rows(table)[SMALL][3] for table in (first, second)] == ["–¹", "–¹"]
    (short,) = (note for note in first.notes if note.startswith("–¹"))
    assert short.startswith("–¹: failed: ArtifactError: long long")
    assert len(short) < 130
    (failures,) = failures_table(grid)
    assert rows(failures) == {"–¹": ("1", SMALL, "zh"), "–²": ("1", POST, "de")}
    assert failures.notes == (f"–¹: failed: {why.replace(chr(10), ' ')}.", "–²: failed: out of memory.")


def test_without_bl_base_there_is_no_target_and_the_rows_say_so(made_up: MadeUp) -> None:
    table = near(ResultsTable(made_up.records(made_up.failed(BASE, 12, "tr"))))
    assert [cells[2] for cells in rows(table).values()] == ["–¹", "–²", "–²", "–²"]
    assert "–²: no target, since BL_BASE has no final score (failed: out of memory)." in table.notes


def test_a_language_near_the_trivial_baseline_is_marked_and_left_out_of_means(made_up: MadeUp) -> None:
    xnli = made_up.task("xnli", baselines={"ar": 0.34, "de": 0.34, "tr": 0.57, "zh": 0.34})
    grid = ResultsTable(made_up.records(tasks=[xnli]))
    table = final_table(grid, xnli)
    assert table.head == ("system", "ar", "de", "tr †", "zh", "mean")
    assert rows(table)[BASE] == ("55.0", "58.0", "61.0", "63.8", "58.9 (3 of 4)")
    assert rows(table)["most frequent class"] == ("34.0", "34.0", "57.0", "34.0", "34.0 (3 of 4)")
    assert any(note.startswith("†: not informative") for note in table.notes)
    assert rows(near(grid))[BASE][-1].endswith("(3 of 4)")
    assert any("tr (not informative)" in note for note in speed_up_table(grid)[0].notes)


def test_one_seed_among_several_is_marked(made_up: MadeUp) -> None:
    grid = ResultsTable(made_up.records(made_up.cell(SMALL, 4, "zh", seeds=1)))
    table = final_table(grid, grid.records.tasks[0])
    assert rows(table)[SMALL] == ("47.0", "50.0", "53.0", "55.8‡", "51.5")
    assert "‡: one seed." in table.notes
    assert "Scores are means over 1 to 3 finetuning seeds." in table.notes
    spread = rows(final_table(grid, grid.records.tasks[0], spread=True))[SMALL]
    assert spread == ("47.0 ± 0.4", "50.0 ± 0.4", "53.0 ± 0.4", "55.8 (one seed)", "51.5")
    single = ResultsTable(made_up.records(seeds=1))
    notes = final_table(single, single.records.tasks[0]).notes
    assert "Every score is of one seed, so that nothing is known of its spread." in notes


def test_baselines_and_the_initialisation_stand_in_tables_of_scores_if_evaluated(
    made_up: MadeUp,
) -> None:
    grid = ResultsTable(made_up.records())
    for task in grid.records.tasks:
        labels = list(rows(final_table(grid, task)))
        assert labels == ["most frequent class", "BL_BASE, as initialised", BASE, SMALL, POST, JOINT]
    assert rows(final_table(grid, task))["BL_BASE, as initialised"][0] == "34.0"
    whole = made_up.cell(BASE, 12, "ar")
    grid = ResultsTable(made_up.records(whole.model_copy(update={"points": whole.points[1:]})))
    table = final_table(grid, grid.records.tasks[0])
    assert rows(table)["BL_BASE, as initialised"][0] == "–¹"
    assert "–¹: update 0 was not evaluated." in table.notes


def test_a_table_of_costs_may_have_intervals_or_seconds_as_measured(made_up: MadeUp) -> None:
    grid = ResultsTable(made_up.records())
    estimate, interval = rows(near(grid))[BASE][0], rows(near(grid, intervals=True))[BASE][0]
    assert interval == f"{estimate} (2.1–4.2)"  # a checkpoint each 20.85 / 10 days
    measured = near(grid, measure=MEASURED_SECONDS)
    assert measured.title.startswith("XNLI, measured days until")
    ratio = float(rows(measured)[BASE][3]) / float(rows(near(grid))[BASE][3])
    assert ratio == pytest.approx(1.3, abs=0.02)


def test_over_the_baseline_the_target_is_higher_and_needs_a_baseline(made_up: MadeUp) -> None:
    tasks = [made_up.task("xnli"), made_up.task("mlqa", ("de",), baselines={})]
    grid = ResultsTable(made_up.records(tasks=tasks))
    plain, over = (rows(near(grid, goal=goal))[BASE] for goal in (TargetRule.PAPER, TargetRule.OVER_BASELINE))
    assert all(float(low) < float(high) for low, high in zip(plain, over, strict=True))
    table = near(grid, 1, goal=TargetRule.OVER_BASELINE)
    assert rows(table)[BASE] == ("–¹", "–")
    assert "–¹: no trivial baseline is recorded." in table.notes


def test_tables_by_depth_have_a_column_per_depth(made_up: MadeUp, paper: ResultsTable) -> None:
    grid = ResultsTable(made_up.records(made_up.failed(JOINT, 2, "tr")))
    (near_maximal,), (intervals,) = target_time_by_depth(grid, JOINT), target_time_by_depth(grid, JOINT, intervals=True)
    assert near_maximal.head == ("depth", "2", "4", "8", "12")
    assert rows(near_maximal)["ar XNLI"][0] == "∞"
    assert rows(near_maximal)["tr XNLI"][0] == "–¹"
    assert rows(intervals)["ar XNLI"][2].startswith(rows(near_maximal)["ar XNLI"][2] + " (")
    (final,) = final_by_depth(grid, JOINT)
    assert final.head == ("depth", "2", "4", "8", "12", "BL_BASE")
    assert rows(final)["XNLI (ar, de, tr)"][0] == "52.8 (2 of 3)"
    assert rows(final)["XNLI (ar)"] == ("51.3", "52.5", "53.2", "53.4", "55.0")
    assert target_time_by_depth(paper, JOINT) == final_by_depth(paper, JOINT) == []


def test_the_source_language_s_scores_name_the_model_and_what_failed(made_up: MadeUp) -> None:
    failed = made_up.source(SMALL, 4, 0.0, scores=None, failed="out of memory")
    records = made_up.records(source_cells=(made_up.source(JOINT, 4, 0.792), made_up.source(JOINT, 12, 0.862), failed))
    (table,) = source_table(ResultsTable(records))
    assert [row.label for row in table.rows] == ["BL_SMALL, 4 layers", "MINIJOINT, 12 layers", "MINIJOINT, 4 layers"]
    assert [row.cells[0] for row in table.rows] == ["–¹", "86.2 ± 0.4", "79.2 ± 0.4"]
    assert table.notes[-2:] == ("–¹: failed: out of memory.", "–²: not run.")


def test_pretraining_again_gives_a_row_per_seed_and_changes_no_other_table(made_up: MadeUp) -> None:
    again = made_up.cell(BASE, 12, "ar", seed=2)
    worse = again.points[-1].model_copy(update={"scores": SeedScores(by_seed={1: 0.5, 2: 0.52, 3: 0.54})})
    grid = ResultsTable(made_up.records(again.model_copy(update={"points": (*again.points[:-1], worse)})))
    (table,) = pretraining_table(grid)
    assert table.head == ("pretraining", "XNLI ar")
    assert rows(table) == {"seed 2": ("52.0 ± 2.0",), "seed 1 (all other tables)": ("55.0 ± 0.4",)}
    assert rows(final_table(grid, grid.records.tasks[0]))[BASE][0] == "55.0"


def test_what_is_not_known_of_a_language_is_a_question_mark(made_up: MadeUp) -> None:
    (table,) = languages_table(ResultsTable(made_up.records()))
    assert rows(table)["tr"] == ("10.0", "SOV", "0.70", "1.00")
    assert rows(table)["zh"] == ("?", "SVO", "0.57", "1.00")
    assert "?: not recorded." in table.notes


def test_short_runs_are_shown_in_a_unit_that_fits_them(made_up: MadeUp) -> None:
    records = made_up.records()
    short = tuple(
        cell.model_copy(
            update={
                "points": tuple(
                    point.model_copy(update={"flops": point.flops / 1e5, "elapsed_s": point.elapsed_s / 1e5})
                    for point in cell.points
                )
            }
        )
        for cell in records.cells
    )
    long, brief = near(ResultsTable(records)), near(ResultsTable(records.model_copy(update={"cells": short})))
    assert "V100-days" in long.title
    assert "V100-seconds" in brief.title
    assert float(rows(brief)[BASE][0]) == pytest.approx(float(rows(long)[BASE][0]) * 0.864, abs=0.05)
