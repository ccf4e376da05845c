"""Questions with contexts and answers: files in SQuAD's JSON format (SQuAD v1.1, XQuAD, MLQA, TyDiQA-GoldP) and rows.

Every answer is checked to stand in its context where its offset says. Offsets count characters (code points).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.data.lines import read_lines
from lingraft.errors import LingraftError, TextError, raise_errors

_FILE_LAYOUT = (
    'Expected SQuAD\'s format: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}.'
)
_ROW_LAYOUT = "Expected the columns id, context, question, and answers with the lists text and answer_start."


class Answer(NamedTuple):
    """A passage of the context, from character `start` on."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context, with one or more gold answers."""

    name: str
    """Its id in the data set."""
    context: str
    question: str
    answers: tuple[Answer, ...]


def read(path: Path) -> list[Question]:
    """Questions of a file in SQuAD's JSON format, plain or .gz, .xz or .zst.

    Raises:
        TextError: the file cannot be read, is not in this format or has no questions; a question has no answer
            (SQuAD v1.1 has none of these); an answer does not stand in its context where its offset says.
    """
    return list(raise_errors(questions_or_errors(path)))


def questions_or_errors(path: Path) -> Iterator[Question | LingraftError]:
    """Yield what `read` returns, and an error in place of each question that is none, or of the rest of the file."""
    empty = True
    try:
        for found in _in_file(_parsed(path), str(path)):
            empty = False
            yield found
    except LingraftError as error:
        yield error
        return
    if empty:
        yield TextError(f"{path} has no questions. {_FILE_LAYOUT}")


def from_rows(rows: Iterable[Mapping[str, Any]], origin: str) -> list[Question]:
    """Questions of a Hugging Face dataset's rows (squad, xquad, mlqa).

    Raises:
        TextError: as `read`.
    """
    questions = [_in_row(row, f"dataset {origin!r}, row {number}") for number, row in enumerate(rows)]
    if not questions:
        raise TextError(f"dataset {origin!r} has no rows. {_ROW_LAYOUT}")
    return questions


def _parsed(path: Path) -> Any:
    try:
        return json.loads("\n".join(read_lines(path)))
    except json.JSONDecodeError as error:
        raise TextError(f"{path} is not JSON: {error}. {_FILE_LAYOUT}") from error


def _in_file(data: Any, place: str) -> Iterator[Question | LingraftError]:
    for number, article in enumerate(_list(data, "data", place, _FILE_LAYOUT)):
        where = f"{place}, article {number}"
        for index, paragraph in enumerate(_list(article, "paragraphs", where, _FILE_LAYOUT)):
            here = f"{where}, paragraph {index}"
            context = _text(paragraph, "context", here, _FILE_LAYOUT)
            for entry in _list(paragraph, "qas", here, _FILE_LAYOUT):
                yield _question_or_error(entry, context, here)


def _question_or_error(entry: Any, context: str, here: str) -> Question | LingraftError:
    try:
        place = f"{here}, question {_value(entry, 'id', here, _FILE_LAYOUT)!r}"
        return _question(entry, context, _list(entry, "answers", place, _FILE_LAYOUT), place, _FILE_LAYOUT)
    except TextError as error:
        return error


def _in_row(row: Mapping[str, Any], place: str) -> Question:
    place_of = f"{place}, question {_value(row, 'id', place, _ROW_LAYOUT)!r}"
    context, answers = _text(row, "context", place_of, _ROW_LAYOUT), _row_answers(row, place_of)
    return _question(row, context, answers, place_of, _ROW_LAYOUT)


def _row_answers(row: Mapping[str, Any], place: str) -> list[Any]:
    """A row's answers one by one; datasets have a list of them, or an object of two lists."""
    answers = _value(row, "answers", place, _ROW_LAYOUT)
    if isinstance(answers, list):
        return answers
    texts, starts = (_list(answers, key, f"{place}, answers", _ROW_LAYOUT) for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise TextError(f"{place}: {len(texts)} answers but {len(starts)} offsets. Give one offset an answer.")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _question(entry: Mapping[str, Any], context: str, answers: Sequence[Any], place: str, layout: str) -> Question:
    question = _text(entry, "question", place, layout)
    if not answers:
        raise TextError(
            f"{place} has no answer, and every question of SQuAD v1.1 has one or more. "
            "Leave questions without an answer out, such as those that SQuAD 2.0 marks as impossible."
        )
    checked = tuple(_answer(each, context, place, layout) for each in answers)
    return Question(str(entry["id"]), context, question, checked)


def _answer(entry: Any, context: str, place: str, layout: str) -> Answer:
    text, start = _text(entry, "text", place, layout), _value(entry, "answer_start", place, layout)
    if not isinstance(start, int) or isinstance(start, bool):
        raise TextError(f"{place}: answer_start must be a whole number, not {start!r}. {layout}")
    found = context[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise TextError(
            f"{place}: the answer {text!r} should stand at character {start} of the context, where {found!r} stands. "
            f"{_advice(text, start, context)}"
        )
    return Answer(text, start)


def _advice(text: str, start: int, context: str) -> str:
    """Where the answer stands, or why it may not be found."""
    places = [at for at in range(len(context)) if context.startswith(text, at)]
    if not places:
        return (
            "It stands nowhere in the context: copy it from there letter by letter, in the same Unicode normalisation."
        )
    nearest = min(places, key=lambda at: abs(at - start))
    return f"The nearest one stands at {nearest}: set answer_start to where it is; count characters from 0, not bytes."


def _list(entry: Any, key: str, place: str, layout: str) -> list[Any]:
    found = _value(entry, key, place, layout)
    if not isinstance(found, list):
        raise TextError(f"{place}: {key!r} must be a list, not {_short(found)}. {layout}")
    return found


def _text(entry: Any, key: str, place: str, layout: str) -> str:
    found = _value(entry, key, place, layout)
    if not isinstance(found, str) or not found.strip():
        raise TextError(f"{place}: {key!r} must be text that is not blank, not {_short(found)}. {layout}")
    try:
        found.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"{place}: {key!r} holds half a surrogate pair, which no text can contain. Write the whole character."
        ) from error
    return found


def _value(entry: Any, key: str, place: str, layout: str) -> Any:
    if not isinstance(entry, Mapping) or key not in entry:
        kind = f"only {sorted(entry)}" if isinstance(entry, Mapping) else f"a {type(entry).__name__}"
        raise TextError(f"{place}: no key {key!r}, {kind}. {layout}")
    return entry[key]


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:80]}..."
