import re
from types import SimpleNamespace

import pytest

from lingraft.artifacts.manifest import Cost
from lingraft.errors import AlignmentError, ArtifactError
from lingraft.reports.run.columns import UNKNOWN
from lingraft.reports.run.note import headline_metrics, run_description
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.table import brief_table, table
from lingraft.stages.results import AlignmentBasis, AlignmentScores, RetrievalScores


def test_the_depths_searched_and_standard_are_marked(made_up: SimpleNamespace) -> None:
    rows = RunRecords.of(made_up.source(), made_up.languages(), made_up.search()).rows
    assert [(row.language, row.layers) for row in rows] == [
        ("German (de)", "2"),
        ("German (de)", "6 standard"),
        ("Turkish (tr)", "2"),
        ("Turkish (tr)", "4 searched"),
        ("Turkish (tr)", "6 standard"),
        ("Greek (el)", "2"),
        ("Greek (el)", "6 standard"),
    ]


def test_the_table_s_rows_align_and_fit_the_terminal(made_up: SimpleNamespace) -> None:
    lines = table(
        RunRecords.of(made_up.source(made_up.task(0.715)), made_up.languages(), made_up.search())
    ).splitlines()
    top = next(place for place, line in enumerate(lines) if line.startswith("language"))
    header, body = lines[top], [line for line in lines[top + 2 : top + 12] if not line.startswith("-")]
    assert len(body) == len(made_up.languages()) + 2
    assert {len(line) for line in body} == {len(header)}
    assert max(map(len, lines)) <= 140
    ends = [match.end() for match in re.finditer(r"before|after|trivial|tests|seconds|TFLOP|all layers|ratio", header)]
    for line in body:
        assert all(line[end - 1] != " " and line[end : end + 1] in {" ", ""} for end in ends)


def test_a_language_in_which_a_task_is_not_judged_is_named(made_up: SimpleNamespace) -> None:
    source, languages = made_up.two_tasks()
    untested = "is served, but not judged, in "
    assert untested not in table(made_up.records())
    told = [line for line in table(RunRecords.of(source, languages)).splitlines() if untested in line]
    brief = brief_table(RunRecords.of(source, languages)).splitlines()
    assert len(told) == 1
    assert told[0] in brief


def test_means_are_over_languages_that_share_a_depth(made_up: SimpleNamespace) -> None:
    records = RunRecords.of(made_up.source(), made_up.languages())
    assert [(row.language, row.layers, len(row.results)) for row in records.means] == [
        ("mean of 3", "2", 3),
        ("mean of 3", "6 standard", 3),
    ]
    expected = sum(row.masked.primary for row in made_up.languages() if row.depth == 2) / 3
    lines = table(RunRecords.of(made_up.source(), made_up.languages())).splitlines()
    assert [
        f" {expected:.1%} " in line for line in lines if re.match(r"mean of 3 +2 .*TFLOP|mean of 3 +2 +\d,", line)
    ] == [True]


def test_embeddings_evaluated_twice_give_one_row(made_up: SimpleNamespace) -> None:
    assert len(RunRecords.of(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2)]).rows) == 1


def test_results_that_do_not_belong_together_are_refused(made_up: SimpleNamespace) -> None:
    with pytest.raises(ArtifactError, match="at least one language"):
        RunRecords.of(made_up.source(), [])
    with pytest.raises(ArtifactError, match=r"two evaluations over 2 layers.*eee.*fff"):
        RunRecords.of(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2, embeddings="f" * 64)])
    with pytest.raises(AlignmentError, match=f"{'b2' * 32}.*{made_up.primary}"):
        RunRecords.of(made_up.source(), [made_up.language("de", 2, primary="b2" * 32)])
    other = {"primary": "c3" * 32}
    with pytest.raises(AlignmentError, match="depth search"):
        RunRecords.of(made_up.source(**other), [made_up.language("de", 2, **other)], made_up.search())


def test_the_source_is_shown_with_the_metric_and_the_cost_of_every_task(made_up: SimpleNamespace) -> None:
    lines = table(RunRecords.of(*made_up.two_tasks())).splitlines()
    assert (
        "  help-topic: accuracy 72.5% ± 1.0, macro F1 58.2% ± 1.0 (most frequent class 32.1%; 512 test examples, 487 "
        "of them cut to fit a block)" in lines
    )
    assert any(line.startswith("  help-questions: F1 60.5% ± 0.7, exact match 40.5% ± 0.7 (trivial ") for line in lines)
    assert "  finetuning on help-questions, all seeds (1, 2): 1,474,560 tokens, 94.2 s, 6.5 TFLOP" in lines
    assert "±: standard deviation over finetuning seeds (help-topic 3, help-questions 2)." in lines


def test_several_tasks_have_a_table_each_below_the_first(made_up: SimpleNamespace) -> None:
    text = table(RunRecords.of(*made_up.two_tasks()))
    _, first, topics, questions, *_ = (block.splitlines() for block in text.split("\n\n"))
    assert "cost of adaptation" in first[0]
    assert (topics[0].strip(), questions[0].strip()) == (
        "zero-shot accuracy, help-topic",
        "zero-shot F1, help-questions",
    )
    for block in (first, topics, questions):
        header, *body = (line for line in block[1:] if not line.startswith("-"))
        assert {len(line) for line in body} == {len(header)}
        assert len(body) == 6 + 2
    assert max(map(len, text.splitlines())) <= 140


def test_the_table_has_recall_per_class_and_warns_of_a_class_that_is_never_found(made_up: SimpleNamespace) -> None:
    text = table(made_up.records())
    recall = 40 / sum(made_up.confusion[0])
    assert re.search(rf"^sbasic +{recall:.1%} +{recall:.1%} ", text, re.MULTILINE)
    assert re.search(r"^Draw \(drawings\) \[sdraw\] +never +never ", text, re.MULTILINE)
    assert "WARNING: Draw (drawings) [sdraw] is never found in any language: none of its 7 test examples" in text
    assert text.count("WARNING") == 1
    assert max(map(len, text[text.index("help-topic: recall") :].split("WARNING")[0].splitlines())) <= 130


def test_the_table_says_what_the_gate_decided_about_each_language(made_up: SimpleNamespace) -> None:
    *_, german, greek = table(made_up.records()).splitlines()
    assert german.startswith("German (de): version 3 of 'made-up-embeddings-de' is promoted: masked accuracy on")
    assert greek == "Greek (el): version 3 of 'made-up-embeddings-el' is NOT promoted: it finds less than the champion."


def test_rows_name_all_depths_and_fresh_layers(made_up: SimpleNamespace) -> None:
    plain, climbed = made_up.language("de", 4), made_up.language("de", 4, shallower=(2,), embeddings="f" * 64)
    post = made_up.language("de", 2, system="MINIPOST", fresh_layers=2, embeddings="f" * 64)
    rows = RunRecords.of(made_up.source(), [plain, climbed, post, made_up.language("de", 2)]).rows
    assert [row.layers for row in rows] == ["2", "2 + 2 fresh", "4", "2, then 4"]


def test_what_step_1b_took_is_told_once_for_all_languages(made_up: SimpleNamespace) -> None:
    cost = Cost(steps=300, tokens=614_400, flops=2.1e12, elapsed_s=41.0)
    post = {"system": "MINIPOST", "fresh_layers": 2, "building": cost}
    rows = [made_up.language("de", 2, **post), made_up.language("tr", 2, **post), made_up.language("tr", 6)]
    lines = [line for line in table(RunRecords.of(made_up.source(), rows)).splitlines() if "step 1b" in line]
    assert lines == ["  step 1b, 2 + 2 fresh layers: 614,400 tokens, 41.0 s, 2.1 TFLOP"]


def _aligned(made_up: SimpleNamespace, *measured: tuple[str, AlignmentScores | None]) -> RunRecords:
    rows = [made_up.language(name, 2, alignment=found) for name, found in measured]
    return RunRecords.of(made_up.source(), rows)


def _alignment(pairs: int, after: float, basis: AlignmentBasis = AlignmentBasis.PARALLEL) -> AlignmentScores:
    before, learned = (RetrievalScores(to_source=at, from_source=at + 0.02, mutual_cosine=0.6) for at in (0.05, after))
    low = RetrievalScores(to_source=0.9, from_source=0.9, mutual_cosine=0.9)
    scores = {"bottom": low, "bottom_initial": low, "top": learned, "top_initial": before}
    return AlignmentScores(basis=basis, pairs=pairs, bottom_layer=2, top_layer=6, **scores)


def test_alignment_stands_beside_masked_accuracy_where_it_was_measured(made_up: SimpleNamespace) -> None:
    records = _aligned(made_up, ("de", _alignment(500, 0.30)), ("tr", _alignment(405, 0.40)), ("el", None))
    shown = table(records)
    german, turkish, greek = (
        next(line for line in shown.splitlines() if line.startswith(f"{name} ("))
        for name in ("German", "Turkish", "Greek")
    )
    assert "6.0% 31.0%" in german
    assert "6.0% 41.0%" in turkish
    assert f"{UNKNOWN}     {UNKNOWN}" in greek
    assert "among 405 to 500 parallel paragraphs" in shown
    assert max(map(len, shown.splitlines())) <= 140
    assert "6.0%" in run_description(records)
    assert "31.0%" in run_description(records)
    assert headline_metrics(records)["tr over 2 of 6/alignment"] == pytest.approx(0.41)
    without = _aligned(made_up, ("de", None))
    assert "alignment" not in table(without) + run_description(without)


def test_the_table_has_a_line_on_the_alignment_of_each_language_that_was_aligned(made_up: SimpleNamespace) -> None:
    lines = [line for line in table(made_up.records()).splitlines() if "alignment with English" in line]
    assert [line.partition(",")[0] for line in lines] == [
        "German (de): alignment with English succeeded",
        "Greek (el): alignment with English failed",
    ]
    assert "rows from the source's pieces, but for 0 from translations, 730 of 966 shared ones copied." in lines[1]


def test_the_brief_table_fits_a_small_terminal_and_leaves_recall_and_reasons_to_the_report(
    made_up: SimpleNamespace,
) -> None:
    records = made_up.records()
    lines = brief_table(records).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("German (de)") for line in lines) == len(records.of_language("de"))
    assert lines[-3] == "Promoted by the gate: German (de)."
    assert lines[-2] == "Greek (el) is NOT promoted; the report says why."
    assert lines[-1].endswith("(sw) FAILED; the report says why.")
    assert not [line for line in lines if "recall" in line or "WARNING" in line]
