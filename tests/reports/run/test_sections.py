"""What the page says beside scores: answers, classes that are never found, the gate, runs, and what to do next."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.cli import app
from lingraft.reports.run.next_steps import next_steps
from lingraft.reports.run.page import PAGE_FILE, write
from lingraft.reports.run.records import RunRecords, TrackedRuns
from tests.reports.run.page import Page


@pytest.fixture
def page(report: Artifact) -> Page:
    return Page(report.folder / PAGE_FILE)


def _region(page: Page, label: str) -> str:
    """The text of the region that is labelled so."""
    [text] = (text for tag, attributes, text in page.elements if tag == "div" and attributes.get("aria-label") == label)
    return " ".join("".join(text).split())


def test_questions_are_shown_with_their_answers_and_how_sure_they_are(page: Page) -> None:
    said = _region(page, "Questions on help-topic")
    assert "German (de) Wie addiere ich eine Spalte? Calc (spreadsheets) [scalc] 93%" in said
    assert "English (en) How do I add up a column? Calc (spreadsheets) [scalc] 93%" in said


def test_a_class_that_is_never_found_is_warned_of_before_everything_else(made_up: SimpleNamespace, page: Page) -> None:
    said = "Draw (drawings) [sdraw] is never found in any language: none of its 7 test examples is recognised."
    assert said in page.texts("li")
    accuracy = made_up.task(0.715).score.mean
    assert f"{accuracy:.1%} ± 1.0" in page.texts("td")  # which would let nobody think of it
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert ids.index("results") < ids.index("method") < ids.index("classes-1")


def test_recall_is_shown_for_every_class_and_evaluation(made_up: SimpleNamespace, page: Page) -> None:
    said = _region(page, "Recall per class of help-topic")
    columns = 1 + len(made_up.languages())
    for place, (label, counts) in enumerate(zip(made_up.task(0.5).labels, made_up.confusion, strict=True)):
        recall, examples = counts[place] / sum(counts), sum(counts) // 3
        shown = f"{recall:.1%}" if recall else "never"
        name = {"sdraw": "Draw (drawings) [sdraw]", "scalc": "Calc (spreadsheets) [scalc]"}.get(label, label)
        assert name + f" {shown}of {examples}".removeprefix(" ") * columns in said.replace(f"{name} ", name)


def test_the_gate_s_verdict_on_each_language_has_its_reason_and_its_run(page: Page) -> None:
    said = _region(page, "Verdicts of the gate")
    assert re.search(
        r"German \(de\) promoted made-up-embeddings-deversion 3, its run masked accuracy on the prim", said
    )
    assert re.search(r"Greek \(el\) not promoted made-up-embeddings-elversion 3, its run it finds less than", said)
    links = [link["href"] for link in page.attributes("a")]
    assert f"http://127.0.0.1:5000/#/experiments/7/runs/{'c' * 32}?workflowType=machine_learning" in links


def test_every_run_is_linked_to_the_pages_that_the_reader_is_told_to_open(page: Page, made_up: SimpleNamespace) -> None:
    links = dict(zip(page.texts("a"), (link["href"] for link in page.attributes("a")), strict=True))
    tracked = made_up.records().tracked
    assert {title: links[title] for title in tracked.runs} == {t: tracked.link(run) for t, run in tracked.runs.items()}
    assert "mlflow ui --backend-store-uri 'sqlite:////data/made up/mlflow.db' --workers 1" in page.texts("pre")


def test_a_small_report_warns_and_draws_and_links_only_what_is_so(made_up: SimpleNamespace, tmp_path: Path) -> None:
    """German and Greek never find a class, Turkish has two depths, and runs are on a server."""
    languages = [
        made_up.language(name, depth, made_up.task(0.4, labels=["yes", "no"]).model_copy(update={"confusion": counts}))
        for name, depth, counts in (
            *(("tr", depth, [[3, 3], [1, 5]]) for depth in (2, 6)),
            *((name, 2, [[6, 0], [6, 0]]) for name in ("de", "el")),
        )
    ]
    server = TrackedRuns(uri="https://mlflow.example.org/", experiment="3", runs={"whole pipeline": "e" * 32})
    records = RunRecords.of(made_up.source(), languages).model_copy(update={"tracked": server})
    page = Page(write(records, tmp_path / "out").folder / PAGE_FILE)
    said = page.texts("li")
    assert "no is never found in German, Greek: none of its 2 test examples is recognised." in said
    assert not any(text.startswith("yes is never found") for text in said)
    titles = {text.partition(".")[0] for text in page.texts("figcaption") if text.startswith("Adaptation to")}
    assert titles == {
        "Adaptation to German",
        "Adaptation to Turkish, by text read",
        "Adaptation to Turkish, by compute",
        "Adaptation to Greek",
    }
    address = f"https://mlflow.example.org/#/experiments/3/runs/{'e' * 32}?workflowType=machine_learning"
    assert address in [link["href"] for link in page.attributes("a")]
    assert not any("mlflow ui" in text for text in page.texts("pre"))


@pytest.mark.parametrize("tracked", [True, False])
def test_every_command_of_what_to_do_next_is_one_that_the_command_line_takes(
    made_up: SimpleNamespace, tracked: bool
) -> None:
    records = made_up.records() if tracked else made_up.records().model_copy(update={"tracked": None})
    commands = [shlex.split(command) for step in next_steps(records) for command in step.commands]
    ours = [words for program, *words in commands if program == "lingraft"]
    assert len(ours) >= (5 if tracked else 3)
    for words in ours:
        assert _understood(words)
    assert not _understood(["registry", "rollback", "model", "--dry"])
    assert not _understood(["registry", "undo", "model"])


def test_the_language_pipeline_is_run_where_its_results_are(made_up: SimpleNamespace) -> None:
    local = TrackedRuns(uri="sqlite:////results/of a run/mlflow.db", experiment="1", runs={"whole pipeline": "e" * 32})
    server = TrackedRuns(uri="https://mlflow.example.org", experiment="1", runs={"whole pipeline": "e" * 32})

    def run(tracked: TrackedRuns, program: str = "pipelines run") -> list[str]:
        records = made_up.records().model_copy(update={"tracked": tracked})
        commands = [command for step in next_steps(records) for command in step.commands]
        return shlex.split([command for command in ["", *commands] if program in command or not command][-1])

    assert run(local)[-2:] == ["--out", "/results/of a run"]
    assert "--out" not in run(server)
    assert run(local, "add-language")[2:4] == ["--results", "/results/of a run"]
    assert _understood(run(local, "add-language")[1:])
    assert run(server, "add-language") == []


def _understood(words: list[str]) -> bool:
    """Whether the command line knows a command and its options; help is asked for, so that nothing is done."""
    return CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def test_the_question_to_ask_next_is_a_request_of_the_endpoint_s_protocol(made_up: SimpleNamespace) -> None:
    [curl] = (c for step in next_steps(made_up.records()) for c in step.commands if c.startswith("curl"))
    words = shlex.split(curl)
    assert "http://localhost:8080/v2/models/help-topic/infer" in words
    assert '"data": ["Wie addiere ich eine Spalte?"]' in words[-1]
    assert '"data": ["de"]' in words[-1]


def test_words_stand_beside_their_nearest_ones_before_and_after_names_apart(page: Page) -> None:
    said = _region(page, "Nearest words of German")
    assert "Datei <rule> 0.31, of 0.16, the 0.10file 0.81, of 0.41, the 0.27" in said
    assert re.search(r"ملف .* names and numbers\s?Writer Writer 0\.31", said)
    rows = [attributes for attributes in page.attributes("bdi") if attributes["lang"] == "el"]
    assert len(rows) == 3  # once, though Greek was adapted over two numbers of layers
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert ids.index("masked") < ids.index("words") < ids.index("task-1")


def test_the_page_says_whether_each_language_was_aligned_and_by_what(page: Page) -> None:
    said = " ".join(page.texts("p"))
    assert (
        "Alignment with English succeeded, from text alone (923 shared pieces, agreement 0.72): 5,891 rows from "
        "neighbours, 0 from translations, 730 of 966 shared ones copied. Learned over 2 of 6 layers." in said
    )
    assert (
        "Alignment with English failed, from text alone (923 shared pieces, agreement 0.72): rows from the source"
        in said
    )
    assert re.search(r"Not aligned with English; \d,\d+ of 6,000 rows are copied from English\.", said)
