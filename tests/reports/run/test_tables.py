from types import SimpleNamespace

import pytest

from lingraft.artifacts.manifest import Cost
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.tables import as_markdown, as_text, costs, headline_metrics, scores
from lingraft.stages.results import AlignmentBasis, AlignmentScores, RetrievalScores, SeedScores


def _cells(records: RunRecords, further: bool = False) -> dict[tuple[str, str, str], tuple[str, ...]]:
    return {each.cells[:3]: each.cells[3:] for each in scores(records, further)}


def test_every_language_has_its_scores_beside_those_of_its_start_and_the_source(made_up: SimpleNamespace) -> None:
    source, languages = made_up.source(made_up.task(0.715)), made_up.languages()
    found = _cells(RunRecords.of(source, languages), further=True)
    assert len(found) == 3 * len(languages)
    for row, name in zip(languages, ("German", "Turkish", "Greek") * 2, strict=False):
        if row.depth == 2:
            task = row.task_scores["help-topic"]
            assert found["masked tokens", name, "2 of 6"] == (
                f"{row.masked.primary_initial:.1%}",
                f"{row.masked.primary:.1%}",
                "14.6%",
                "",
            )
            assert found["help-topic, accuracy", name, "2 of 6"] == (
                f"{task.initial.mean:.1%}",
                f"{task.score.mean:.1%} ± 1.0",
                "72.5% ± 1.0",
                "32.1% one answer",
            )
    assert ("help-topic, macro F1", "Greek", "6 of 6 standard") in found


def test_a_language_without_test_examples_of_a_task_has_no_row_of_it(made_up: SimpleNamespace) -> None:
    records = RunRecords.of(*made_up.two_tasks())
    found = _cells(records)
    assert "help-questions is not judged in Turkish: there are no test examples." in records.warnings()
    assert ("help-questions, F1", "German", "2 of 6 + 2 fresh") in found
    assert not [key for key in found if key[:2] == ("help-questions, F1", "Turkish")]


def test_the_baseline_is_the_best_of_what_needs_no_learning(made_up: SimpleNamespace) -> None:
    shares = {"BM25": SeedScores(by_seed={1: 0.2}), "source_tokenizer": SeedScores(by_seed={1: 0.3})}
    search = made_up.questions(0.6, seeds=1).model_copy(update={"name": "search", "baselines": shares})
    found = _cells(RunRecords.of(made_up.source(), [made_up.language("de", 2, search)]))
    assert found["search, F1", "German", "2 of 6"] == ("8.2%", "60.0%", "", "30.0% source tokenizer")


def test_alignment_is_shown_where_it_was_measured(made_up: SimpleNamespace) -> None:
    before, after = (RetrievalScores(to_source=at, from_source=at + 0.02, mutual_cosine=0.6) for at in (0.05, 0.3))
    places = {"bottom": after, "bottom_initial": after, "top": after, "top_initial": before}
    found = AlignmentScores(basis=AlignmentBasis.PARALLEL, pairs=500, bottom_layer=2, top_layer=6, **places)
    rows = [made_up.language("de", 2, alignment=found), made_up.language("tr", 2)]
    records = RunRecords.of(made_up.source(), rows)
    assert _cells(records)["alignment, parallel paragraphs", "German", "2 of 6"] == ("6.0%", "31.0%", "", "")
    assert as_text(records).count("alignment, ") == 1
    assert headline_metrics(records)["de over 2 of 6/alignment"] == pytest.approx(0.31)


def test_flops_and_time_are_summed_over_all_that_was_trained(made_up: SimpleNamespace) -> None:
    cost = Cost(steps=300, tokens=614_400, flops=2.1e12, elapsed_s=7260.0)
    post = {"system": "MINIPOST", "fresh_layers": 2, "building": cost}
    rows = [made_up.language("de", 2, **post), made_up.language("tr", 2, **post)]
    rows.append(made_up.language("el", 2, **post, cost=Cost(), whole_flops=0.0))  # without pairs it learns nothing
    imported = made_up.source(pretraining=Cost(), pretraining_history=[])
    _, found = costs(RunRecords.of(imported, rows))
    assert found[0] == ("mini-model, 2 of 6 + 2 fresh", "300", "614,400", "2.1 TFLOP", "", "2.0 h")
    spent, whole = rows[0].cost, rows[0].whole_flops
    assert found[1][0] == "German (de), 2 of 6 + 2 fresh"
    assert found[1][4:] == (f"{spent.flops / whole:.1%}", f"{spent.elapsed_s:.0f} s")
    assert found[-1][2] == f"{614_400 + 2 * spent.tokens:,}"
    assert len(found) == 4


def test_the_terminal_has_aligned_tables_and_what_the_gate_decided(made_up: SimpleNamespace) -> None:
    lines = as_text(made_up.records()).splitlines()
    header, rule, *body = lines[: 2 + 2 * len(made_up.languages())]
    assert {len(line) for line in (header, rule)} == {len(rule)}
    assert max(map(len, body)) <= len(rule) <= 110
    assert any(
        line.startswith("German (de): version 3 of 'made-up-embeddings-de' is promoted: masked acc") for line in lines
    )
    assert "Greek (el): version 3 of 'made-up-embeddings-el' is NOT promoted: it finds less than the champion." in lines
    assert "Swahili (sw) FAILED: its text holds no document" in lines
    assert lines[-1].startswith("WARNING: help-topic: no test example of sdraw is recognised in English, German (2 of")


def test_the_run_s_description_has_scores_and_verdicts(made_up: SimpleNamespace) -> None:
    told = as_markdown(made_up.records())
    assert told.startswith("**From English (en) to German (de), Turkish (tr), Greek (el).**")
    assert "| help-topic, accuracy | German | 2 of 6 | " in told
    assert "is NOT promoted: it finds less than the champion." in told
