"""Questions with contexts and answers: files in SQuAD's JSON format (SQuAD v1.1, XQuAD, MLQA, TyDiQA-GoldP) and rows.

Every answer is checked to stand in its context where its offset says. Offsets count characters (code points).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field, StrictInt, ValidationError

from lingraft.data.lines import read_lines
from lingraft.errors import LingraftError, TextError

_FILE_LAYOUT = (
    'Expected SQuAD\'s format: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}.'
)
_ROW_LAYOUT = "Expected the columns id, context, question, and answers with the lists text and answer_start."
_SHOWN_CHARACTERS = 80
_NotBlank = Annotated[str, Field(pattern=r"\S")]


class _AnswerEntry(BaseModel):
    text: _NotBlank
    answer_start: StrictInt


class _QuestionEntry(BaseModel):
    id: str | int
    question: _NotBlank
    answers: list[_AnswerEntry]


class _SquadParagraph(BaseModel):
    context: _NotBlank
    qas: list[Any]


class _Article(BaseModel):
    paragraphs: list[_SquadParagraph]


class _File(BaseModel):
    data: list[_Article]


class _AnswerColumns(BaseModel):
    text: list[Any]
    answer_start: list[Any]


class _SquadRow(_QuestionEntry):
    context: _NotBlank


_Model = TypeVar("_Model", bound=BaseModel)


class Answer(NamedTuple):
    """A passage of the context, from character `start` on."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context, with one or more gold answers."""

    name: str
    """Id of the question in the data set."""
    context: str
    question: str
    answers: tuple[Answer, ...]


def questions_or_errors(path: Path) -> Iterator[Question | LingraftError]:
    """Yield the questions of a file in SQuAD's format, plain or compressed, and an error for each that is none.

    A question without an answer, or with one that does not stand in the context where its offset says, is none. An
    error that concerns the whole file is the only item.
    """
    try:
        content = _validate(_File, json.loads("\n".join(read_lines(path))), str(path), _FILE_LAYOUT)
    except json.JSONDecodeError as error:
        yield TextError(f"{path} is not JSON: {error}. {_FILE_LAYOUT}")
        return
    except LingraftError as error:
        yield error
        return
    empty = True
    for number, article in enumerate(content.data):
        for index, paragraph in enumerate(article.paragraphs):
            for entry in paragraph.qas:
                empty = False
                yield _question_or_error(entry, paragraph.context, f"{path}, article {number}, paragraph {index}")
    if empty:
        yield TextError(f"{path} has no questions. {_FILE_LAYOUT}")


def questions_of_rows(rows: Iterable[Mapping[str, Any]], origin: str) -> Iterator[Question]:
    """Yield the questions of a Hugging Face dataset's rows (squad, xquad, mlqa)."""
    for number, row in enumerate(rows):
        place = f"{origin}, row {number}"
        if "id" in row:
            place = f"{place}, question {row['id']!r}"
        answers = row.get("answers")
        if isinstance(answers, Mapping):
            row = {**row, "answers": _pair_answers(answers, place)}
        entry = _validate(_SquadRow, row, place, _ROW_LAYOUT)
        yield _question(entry, entry.context, place)


def _pair_answers(answers: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """Return the answers of a row one by one; most datasets hold them as an object of two lists."""
    columns = _validate(_AnswerColumns, answers, f"{place}, answers", _ROW_LAYOUT)
    if len(columns.text) != len(columns.answer_start):
        raise TextError(
            f"{place}: {len(columns.text)} answers but {len(columns.answer_start)} offsets. Give one offset an answer."
        )
    pairs = zip(columns.text, columns.answer_start, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


def _question_or_error(entry: Any, context: str, place: str) -> Question | LingraftError:
    if isinstance(entry, Mapping) and "id" in entry:
        place = f"{place}, question {entry['id']!r}"
    try:
        return _question(_validate(_QuestionEntry, entry, place, _FILE_LAYOUT), context, place)
    except TextError as error:
        return error


def _question(entry: _QuestionEntry, context: str, place: str) -> Question:
    if not entry.answers:
        raise TextError(
            f"{place} has no answer, and every question of SQuAD v1.1 has one or more. "
            "Leave questions without an answer out, such as those that SQuAD 2.0 marks as impossible."
        )
    answers = tuple(Answer(answer.text, answer.answer_start) for answer in entry.answers)
    for text, start in answers:
        found = context[start : start + len(text)] if start >= 0 else ""
        if found != text:
            raise TextError(
                f"{place}: the answer {text!r} should stand at character {start} of the context, where {found!r} "
                f"stands. {_advice(text, start, context)}"
            )
    return Question(str(entry.id), context, entry.question, answers)


def _advice(text: str, start: int, context: str) -> str:
    places = [at for at in range(len(context)) if context.startswith(text, at)]
    if not places:
        return (
            "It stands nowhere in the context: copy it from there letter by letter, in the same Unicode normalisation."
        )
    nearest = min(places, key=lambda at: abs(at - start))
    return f"The nearest one stands at {nearest}: set answer_start to where it is; count characters from 0, not bytes."


def _validate(model: type[_Model], content: Any, place: str, layout: str) -> _Model:
    """Return an object of JSON as a record; the error names the first place where it is of another form."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where, problem = ".".join(map(str, first["loc"])), first["msg"].split(" or instance of")[0]
        shown = repr(first["input"])
        if len(shown) > _SHOWN_CHARACTERS:
            shown = f"{shown[:_SHOWN_CHARACTERS]}..."
        found = f"{where}: {problem}" if where else problem
        raise TextError(f"{place}: {found}, not {shown}. {layout}") from error
