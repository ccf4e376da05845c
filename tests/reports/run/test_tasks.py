"""The page on several tasks of different metrics, one of which a language lacks."""

from pathlib import Path
from types import SimpleNamespace

from lingraft.artifacts.artifact import Artifact
from lingraft.reports.run.page import PAGE_FILE, write
from lingraft.reports.run.records import RunRecords
from tests.reports.run.page import Page


def test_every_task_has_its_own_section_with_its_own_metric(report_of_two: Artifact) -> None:
    page = Page(report_of_two.folder / PAGE_FILE)
    assert [text for text in page.texts("h2") if "Zero-shot" in text] == [
        "Zero-shot use: help-topic",
        "Zero-shot use: help-questions",
    ]
    captions = page.texts("caption")
    assert "Zero-shot accuracy on test examples of help-topic" in captions
    assert "Zero-shot F1 on test examples of help-questions" in captions
    assert {"accuracy on help-topic", "F1 on help-questions", "exact match on help-questions"} <= set(page.texts("th"))
    assert {"finetuning on help-topic, all seeds", "finetuning on help-questions, all seeds"} <= set(page.texts("th"))
    figures = " ".join(page.texts("figcaption"))
    for title in (
        "Zero-shot accuracy on help-topic.",
        "Zero-shot F1 on help-questions.",
        "Finetuning on help-questions",
    ):
        assert figures.count(title) == 1
    labels = [str(attributes.get("aria-label")) for attributes in page.attributes("div")]
    matrices = [label for label in labels if label.startswith("Confusion matrix of ")]
    assert len(matrices) == 1 + 6  # only for classes
    assert all("help-topic" in label for label in matrices)


def test_a_language_without_examples_of_a_task_is_a_hole_and_no_part_of_its_mean(report_of_two: Artifact) -> None:
    page = Page(report_of_two.folder / PAGE_FILE)
    cells = " | ".join(page.texts("th", "td"))
    assert "Turkish (tr) | 2 of 6 + 2 fresh | – | – | – | – | – | –" in cells
    assert "mean of 2 | 2 of 6 + 2 fresh | 8.7% | 36.5% | 24.5% | 4.4% | 1,190 | 0" in cells
    (plot,) = (svg for svg in page.attributes("svg") if "trivial answer" in (svg["aria-label"] or ""))
    assert "German  2 of 6 + 2 fresh" in (plot["aria-label"] or "")
    assert "Turkish" not in (plot["aria-label"] or "")


def test_the_summary_says_on_which_languages_a_task_was_tested(report_of_two: Artifact) -> None:
    (sentences,) = (text for text in Page(report_of_two.folder / PAGE_FILE).texts("li") if text.startswith("Over 2"))
    for said in (
        "Over 2 of 6 layers and 2 fresh ones (German, Turkish, Greek):",
        "Zero-shot accuracy on help-topic is 48.0% (macro F1 38.6%), against 32.1% for the most frequent class",
        "Zero-shot F1 on help-questions (German, Greek) is 36.5%, against 4.4% for the trivial answer, 8.7% as "
        "initialised.",
        "is 1.0 points below it in zero-shot accuracy on help-topic",
        "is 2.5 points below it in zero-shot F1 on help-questions (German, Greek).",
    ):
        assert said in sentences


def test_layers_that_step_1b_built_are_explained(report: Artifact, report_of_two: Artifact) -> None:
    steps, others = (" ".join(Page(made.folder / PAGE_FILE).texts("li")) for made in (report_of_two, report))
    assert "A few fresh layers were trained" in steps
    assert "It has a prediction head at its last layer." in steps
    assert "fresh" not in others


def test_a_task_that_the_source_lacks_is_shown_for_the_languages(made_up: SimpleNamespace, tmp_path: Path) -> None:
    languages = [made_up.language("de", 2, made_up.questions(0.4))]
    page = Page(write(RunRecords.of(made_up.source(), languages), tmp_path / "out").folder / PAGE_FILE)
    assert "Zero-shot F1 on test examples of help-questions" in page.texts("caption")
    assert "F1 on help-questions" not in page.texts("th")
    assert not any("(source)" in text for text in page.texts("figcaption", "caption"))


def test_a_task_that_only_the_source_was_tested_on_has_no_plot_of_languages(
    made_up: SimpleNamespace, tmp_path: Path
) -> None:
    source = made_up.source(made_up.questions(0.6))
    page = Page(write(RunRecords.of(source, [made_up.language("de", 2)]), tmp_path / "out").folder / PAGE_FILE)
    assert "F1 on help-questions" in page.texts("th")
    assert page.texts("td").count("–") == 6
    assert not any("Zero-shot" in text for text in page.texts("figcaption"))
