import json
import re
from pathlib import Path
from typing import Any

import pytest

from lingraft.tasks.squad import Answer, Question, questions_of_rows, questions_or_errors

CONTEXT = "Der Müller 👍 mahlt Roggen, dann wieder Roggen."


def answer(text: Any = "Roggen", start: Any = 19) -> dict[str, Any]:
    return {"text": text, "answer_start": start}


def entry(name: Any = "q1", **changes: Any) -> dict[str, Any]:
    return {"id": name, "question": "Was mahlt er?", "answers": [answer()]} | changes


def dataset(*entries: dict[str, Any], context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "Mühle", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def row(texts: Any, starts: Any, **changes: Any) -> dict[str, Any]:
    answers = {"text": texts, "answer_start": starts}
    return {"id": "q1", "title": "", "context": CONTEXT, "question": "Was?", "answers": answers} | changes


def read(folder: Path, data: Any) -> list[Any]:
    """Questions of a file, and messages of errors."""
    path = folder / "questions.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return [found if isinstance(found, Question) else str(found) for found in questions_or_errors(path)]


def test_a_file_gives_its_questions_in_order(tmp_path: Path) -> None:
    data = dataset(entry(), entry("q2", answers=[answer(start=39), answer("Müller", 4)]))
    data["data"].append({"paragraphs": [{"context": "a b", "qas": [entry(3, answers=[answer("b", 2)])]}]})
    assert read(tmp_path, data) == [
        Question("q1", CONTEXT, "Was mahlt er?", (Answer("Roggen", 19),)),
        Question("q2", CONTEXT, "Was mahlt er?", (Answer("Roggen", 39), Answer("Müller", 4))),
        Question("3", "a b", "Was mahlt er?", (Answer("b", 2),)),
    ]


@pytest.mark.parametrize(
    "cells", [row(["Roggen", "Müller"], [39, 4]), row([], [], answers=[answer(start=39), answer("Müller", 4)])]
)
def test_rows_hold_answers_in_two_lists_or_one_by_one(cells: dict[str, Any]) -> None:
    expected = Question("q1", CONTEXT, "Was?", (Answer("Roggen", 39), Answer("Müller", 4)))
    assert list(questions_of_rows([cells], "squad")) == [expected]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        # A count of UTF-8 bytes, with four for the thumb and two for the umlaut.
        (
            [answer(start=23)],
            "'Roggen' should stand at character 23 .* where 'en, da' stands. .* at 19: set",
        ),
        ([answer(), answer("Weizen", 19)], "the answer 'Weizen' .* stands nowhere in the context: copy it"),
        ([answer(start=-7)], "'Roggen' should stand at character -7 .* where '' stands"),
        ([], r"has no answer.*SQuAD 2\.0"),
    ],
)
def test_a_wrong_answer_is_refused_and_hides_no_other_question(
    tmp_path: Path, answers: list[Any], message: str
) -> None:
    wrong, right = read(tmp_path, dataset(entry("q7", answers=answers), entry()))
    assert re.search(rf"article 0, paragraph 0, question 'q7'.*{message}", wrong)
    assert right.name == "q1"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not JSON"),
        ([], r"should be a valid dictionary, not \[\]"),
        ({"data": []}, "has no questions"),
        ({"data": [{"paragraphs": [7]}]}, r"data\.0\.paragraphs\.0: .* not 7"),
        (dataset(entry(), context=" "), r"context: .* not ' '"),
        (dataset(entry(answers=[answer("")])), r"question 'q1': answers\.0\.text: .* not ''"),
        (dataset(entry(answers=[answer(start="19")])), "answer_start: .* not '19'"),
        (dataset({"question": "?"}), "paragraph 0: id: Field required"),
        (dataset(entry(question="\ud83d?")), "question: .*unicode"),
    ],
)
def test_another_form_is_refused_with_its_place_and_the_one_expected(tmp_path: Path, data: Any, message: str) -> None:
    [found] = read(tmp_path, data)
    assert found.startswith(str(tmp_path / "questions.json"))
    assert re.search(rf"{message}.* Expected SQuAD's format", found)
