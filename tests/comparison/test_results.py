"""Tables and sentences of made-up records, and of the paper's own numbers as if they were records."""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from lingraft.comparison.page import html_page, markdown_page, page
from lingraft.comparison.records import Cell, Records
from lingraft.comparison.results import Results, Variant, cost_in_words, score_cell, speed_up_in_words
from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.model.flops import V100_FLOPS_PER_S
from tests.comparison.published import AVERAGE_SCORES, DAYS, SCORES, TOTAL_DAYS

BASE, SMALL, JOINT, POST = System.BL_BASE, System.BL_SMALL, System.MINIJOINT, System.MINIPOST
LAYERS, DEPTH = 12, 4
DAY = 86_400 * V100_FLOPS_PER_S


def cell(system: System, language: str, *scores: float, **changes: Any) -> Cell:
    """A cell with checkpoints at equal distances; BL_BASE takes 1 FLOP a checkpoint, other systems half of it."""
    steps = range(len(scores))
    each = 1.0 if system is BASE else 0.5
    given = {
        "depth": LAYERS if system is BASE else DEPTH,
        "task": "topic",
        "seed": 1,
        "steps": steps,
        "flops": [each * step for step in steps],
        "elapsed_s": [10 * each * step for step in steps],
        "scores": {1: scores},
        "trivial": 0.1,
    }
    return Cell(system=system, language=language, **given | changes)


def records(*cells: Cell, **changes: Any) -> Records:
    given = {
        "title": "made up",
        "source": "en",
        "layers": LAYERS,
        "metrics": {"topic": "accuracy", "masked": "accuracy"},
    }
    return Records(cells=cells, **given | changes)


def results(*cells: Cell) -> Results:
    return Results(records(*cells))


def variant(system: System, start: str = "", depth: int = DEPTH) -> Variant:
    return Variant(start, system, LAYERS if system is BASE else depth)


def of_the_paper() -> Iterator[Cell]:
    """Curves that meet the paper's days and end at its scores."""
    for task, rows in SCORES.items():
        for system, finals in rows.items():
            for language, final in finals.items():
                days = DAYS[task].get(system, {}).get(language, math.inf)
                met = [(days, 0.95 * rows[BASE][language] + 1e-9)] if math.isfinite(days) else [(1.0, 0.0)]
                spent, percents = zip((0.0, 0.0), *met, (TOTAL_DAYS[system], final), strict=True)
                yield cell(
                    system,
                    language,
                    *(percent / 100 for percent in percents),
                    task=task,
                    flops=[day * DAY for day in spent],
                    elapsed_s=spent,
                    trivial=None,
                )


def test_the_papers_own_numbers_come_out_as_it_prints_them() -> None:
    found = Results(records(*of_the_paper(), metrics=dict.fromkeys(SCORES, "score")))
    for task, averages in AVERAGE_SCORES.items():
        for system, printed in averages.items():
            final = found.final(variant(system), task)
            assert final
            assert 100 * final.value == pytest.approx(printed, abs=0.051)
    sped = {
        (system, task): found.speed_ups(variant(system), task).values() for system in (JOINT, POST) for task in DAYS
    }
    assert [speed_up_in_words(sped[JOINT, task]) for task in DAYS] == [
        f"speed-up {ratio}" for ratio in ("2.1×", "1.9×", "3.2×", "2.5× (9 of 10)")
    ]
    assert speed_up_in_words(sped[POST, "xnli"]) == "speed-up 1.4×"
    kept = {
        system: mean(found.retained(variant(system), task) for task in ("xnli", "mlqa", "paws-x"))
        for system in (JOINT, POST)
    }
    assert {system: round(100 * share, 1) for system, share in kept.items()} == {JOINT: 98.7, POST: 99.3}
    assert cost_in_words(found.reached(variant(JOINT), "xquad", "tr")) == "never"
    flops, _, share = found.compute(variant(JOINT)) or (0, 0, 0)
    assert flops == pytest.approx(8.1 * DAY)
    assert share == pytest.approx(8.1 / 20.9)


def test_seeds_are_averaged_with_their_spread_and_one_seed_has_none() -> None:
    cells = [
        cell(BASE, language, 0.2, 0.4, score + 0.1 * seed, seed=seed)
        for language, score in (("de", 0.5), ("tr", 0.7))
        for seed in (1, 2)
    ]
    found = results(*cells).final(variant(BASE), "topic")
    assert found
    assert found.shown(4) == "75.0 ± 7.1"  # of the means over languages, 0.7 and 0.8
    assert found.shown(6) == "75.0 ± 7.1 (4 of 6)"
    several = cell(BASE, "de", 0.2, 0.4, scores={1: (0.2, 0.5), 2: (0.4, 0.7)}, steps=(0, 1))
    assert results(several).final(variant(BASE), "topic").shown(1) == "60.0 ± 14.1"
    assert results(cells[0]).final(variant(BASE), "topic").spread is None


def test_a_table_has_scores_shares_speed_ups_and_scores_at_equal_compute() -> None:
    found = results(
        cell(BASE, "de", 0.2, 0.6, 0.8), cell(POST, "de", 0.2, 0.77, 0.78), cell(SMALL, "de", 0.2, 0.3, 0.4)
    )
    assert score_cell(found, variant(BASE), "topic") == "80.0\n60.0 at equal compute"
    # 95% are 0.76: BL_BASE has them after 1.8 FLOPs, and MINIPOST after 0.49.
    assert score_cell(found, variant(POST), "topic") == "78.0\n98% of BL_BASE's\nspeed-up 3.7×\n78.0 at equal compute"
    assert "never reached (1)" in score_cell(found, variant(SMALL), "topic")


def test_a_start_costs_what_standard_adaptation_computes_in_its_seconds() -> None:
    base = cell(BASE, "de", 0.6, 0.7, 0.8, start="aligned", start_s=5.0)
    found = results(base, cell(POST, "de", 0.77, 0.77, 0.78, start="aligned", start_s=5.0))
    assert found.compute(variant(POST, "aligned")) == pytest.approx((1.5, 15.0, 1.5 / 2.5))
    assert list(found.speed_ups(variant(POST, "aligned"), "topic").values()) == ["no update needed"]


def test_what_says_nothing_is_left_out_of_means_and_said() -> None:
    """German ends near the trivial answer with one seed of two, Turkish could not be aligned, Greek counts."""
    cells = [
        cell(system, language, 0.1, 0.2, final, seed=seed)
        for system in (BASE, JOINT)
        for seed, finals in ((1, {"de": 0.5, "tr": 0.6, "el": 0.7}), (2, {"de": 0.14, "tr": 0.6, "el": 0.8}))
        for language, final in finals.items()
    ]
    cells = [one.model_copy(update={"is_aligned": one.language != "tr" or one.system is BASE}) for one in cells]
    found = results(*cells)
    assert found.languages_of("", "topic") == ["el"]
    assert found.final(variant(JOINT), "topic").shown(2) == "75.0 ± 7.1"
    limits = " ".join(page(found.records).limits)
    assert "topic in de" in limits
    assert "align their rows: tr" in limits


def test_what_failed_is_missing_with_its_reason_and_the_rest_is_there() -> None:
    cells = [cell(BASE, language, 0.2, 0.6, 0.8) for language in ("de", "tr")]
    failed = Cell(system=POST, depth=DEPTH, language="tr", task="topic", seed=1, failed="out of memory")
    made = page(records(*cells, cell(POST, "de", 0.2, 0.7, 0.8), failed))
    [row] = [row for row in made.table.rows if row[0].startswith("MINIPOST")]
    assert row[2].startswith("80.0 (1 of 2)\n")
    assert made.failures == ("1 score (MINIPOST tr topic): out of memory",)
    assert made.sentences[-1].endswith("1 of 4 scores are missing.")


def test_the_page_has_trivial_and_english_scores_every_start_and_depth_and_a_picture() -> None:
    cells = [
        cell(system, "de", 0.2, 0.6, 0.8, start=start, depth=depth)
        for start in ("overlap", "aligned")
        for system, depth in ((BASE, LAYERS), (JOINT, 2), (JOINT, DEPTH))
    ]
    english = Cell(system=BASE, depth=LAYERS, language="en", task="topic", seed=1, scores={1: (0.9,), 2: (0.92,)})
    made = records(*cells, english, notes=("One more limit.",))
    rows = {row[0]: row[-1] for row in page(made).table.rows}
    assert {"from overlap", "from aligned", "MINIJOINT, 2 of 12 layers", "MINIJOINT, 4 of 12 layers"} < {*rows}
    assert rows["*trivial answer*"] == "10.0"
    assert rows["*BL_BASE, in the source language, en*"] == "91.0 ± 1.4"
    text, html = markdown_page(made, "curves.png"), html_page(made)
    for shown in ("made up", "One more limit.", "91.0 ± 1.4"):
        assert shown in text
        assert shown in html
    assert "](curves.png)" in text
    assert "data:image/png;base64," in html
    assert "<script" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_records_are_the_same_after_saving_compressed_or_not(tmp_path: Path) -> None:
    made = records(cell(BASE, "de", 0.2, 0.6, 0.8), machine="a machine")
    for name in ("records.json", "records.json.xz"):
        made.save(tmp_path / name)
        assert Records.load(tmp_path / name) == made
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactError, match="is no record of a comparison"):
        Records.load(tmp_path / "damaged.json")
