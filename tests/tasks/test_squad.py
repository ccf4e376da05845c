import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from lingraft.errors import TextError
from lingraft.tasks import squad
from lingraft.tasks.squad import Answer, Question

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


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def to_file(data: Any) -> Path:
        path = tmp_path / "questions.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return path

    return to_file


def test_a_file_gives_its_questions_in_order(write: Callable[[Any], Path]) -> None:
    data = dataset(entry(), entry("q2", answers=[answer(start=39), answer("Müller", 4)]))
    data["data"].append({"paragraphs": [{"context": "a b", "qas": [entry(3, answers=[answer("b", 2)])]}]})
    assert squad.read(write(data)) == [
        Question("q1", CONTEXT, "Was mahlt er?", (Answer("Roggen", 19),)),
        Question("q2", CONTEXT, "Was mahlt er?", (Answer("Roggen", 39), Answer("Müller", 4))),
        Question("3", "a b", "Was mahlt er?", (Answer("b", 2),)),
    ]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".zst", lambda raw: zstandard.ZstdCompressor().compress(raw)),
    ],
)
def test_packed_and_indented_files_read_like_plain_ones(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"questions.json{suffix}"
    path.write_bytes(pack(json.dumps(dataset(entry()), indent=1, ensure_ascii=False).encode()))
    assert [question.answers for question in squad.read(path)] == [(Answer("Roggen", 19),)]


def test_rows_of_a_dataset_give_the_same_questions() -> None:
    found = squad.from_rows([row(["Roggen", "Müller"], [39, 4])], "squad")
    assert found == [Question("q1", CONTEXT, "Was?", (Answer("Roggen", 39), Answer("Müller", 4)))]


def test_rows_may_list_their_answers_one_by_one() -> None:
    answers = [answer(start=39), answer("Müller", 4)]
    assert squad.from_rows([row([], [], answers=answers)], "xquad") == squad.from_rows(
        [row(["Roggen", "Müller"], [39, 4])], "xquad"
    )


def test_an_answer_elsewhere_is_refused_with_its_place(write: Callable[[Any], Path]) -> None:
    # A count of UTF-8 bytes, with four for the thumb and two for the umlaut.
    data = dataset(entry("q7", answers=[answer(start=23)]))
    with pytest.raises(TextError) as caught:
        squad.read(write(data))
    message = str(caught.value)
    assert "question 'q7': the answer 'Roggen' should stand at character 23 of the context" in message
    assert "where 'en, da' stands. The nearest one stands at 19: set answer_start to" in message


def test_an_answer_that_is_nowhere_is_refused() -> None:
    with pytest.raises(TextError, match=r"the answer 'Weizen' .* stands nowhere in the context: copy it"):
        squad.from_rows([row(["Weizen"], [19])], "squad")


def test_an_offset_does_not_count_from_the_end() -> None:
    assert CONTEXT[-7:-1] == "Roggen"
    with pytest.raises(TextError, match=r"'Roggen' should stand at character -7 .* where '' stands"):
        squad.from_rows([row(["Roggen"], [-7])], "squad")


@pytest.mark.parametrize("answers", [[], [answer(), answer("Weizen", 0)]])
def test_every_answer_is_checked_and_there_must_be_one(write: Callable[[Any], Path], answers: list[Any]) -> None:
    with pytest.raises(TextError, match=r"question 'q1'(:| has no answer.*SQuAD 2\.0)"):
        squad.read(write(dataset(entry(answers=answers))))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not JSON"),
        ([], "no key 'data', a list"),
        ({"version": "1.1"}, r"no key 'data', only \['version'\]"),
        ({"data": []}, "has no questions"),
        ({"data": {}}, "'data' must be a list, not {}"),
        ({"data": [{"paragraphs": [7]}]}, "article 0, paragraph 0: no key 'context', a int"),
        (dataset(entry(), context=" "), "'context' must be text that is not blank, not ' '"),
        (dataset(entry(question=None)), "question 'q1': 'question' must be text that is not blank, not None"),
        (dataset(entry(answers=None)), "question 'q1': 'answers' must be a list, not None"),
        (dataset(entry(answers=[answer("")])), "question 'q1': 'text' must be text that is not blank"),
        (dataset(entry(answers=[answer(start="19")])), "answer_start must be a whole number, not '19'"),
        (dataset(entry(answers=[answer(start=True)])), "answer_start must be a whole number, not True"),
        (dataset(entry(answers=[{"text": "Roggen"}])), "no key 'answer_start'"),
        (dataset({"question": "?"}), "paragraph 0: no key 'id'"),
        (dataset(entry(question="\ud83d?")), "half a surrogate pair"),
    ],
)
def test_what_is_not_in_squads_format_is_refused_with_its_place(
    write: Callable[[Any], Path], data: Any, message: str
) -> None:
    path = write(data)
    with pytest.raises(TextError, match=message) as caught:
        squad.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "dataset 'xquad' has no rows. Expected the columns"),
        ([row(["Roggen"], [])], "row 0, question 'q1': 1 answers but 0 offsets"),
        ([row(["Roggen"], [19]), row([], [])], "row 1, question 'q1' has no answer"),
        ([row(["Roggen"], [19], answers=None)], r"row 0, question 'q1', answers: no key 'text', a NoneType"),
        ([{"id": "q1"}], r"question 'q1': no key 'context', only \['id'\]"),
    ],
)
def test_rows_that_lack_something_are_refused(rows: list[Any], message: str) -> None:
    with pytest.raises(TextError, match=message):
        squad.from_rows(rows, "xquad")


def test_a_long_value_is_not_printed_whole() -> None:
    with pytest.raises(TextError) as caught:
        squad.from_rows([row("x" * 5000, [0])], "squad")
    assert len(str(caught.value)) < 400
