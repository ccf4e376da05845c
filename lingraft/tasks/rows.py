"""Rows of task examples: tab-separated files, with or without a header, and JSONL; plain or compressed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.data.lines import COMPRESSIONS, read_lines
from lingraft.errors import LingraftError, TextError

_TABLES, _OBJECTS = (".tsv", ".txt"), ".jsonl"
_LANGUAGE = "language"
"""A column of this name tells the languages of one file apart, as in XNLI's own files."""


_NAME = re.compile(r" *[^\W\d][\w.-]* *")
"""Name of a column."""


class Row(NamedTuple):
    """Values by column, and the row's place for errors."""

    place: str
    cells: Mapping[str, Any]


RowOrError = Row | LingraftError


class Layouts(NamedTuple):
    """Names of the columns of a kind of task."""

    required: tuple[tuple[str, ...], ...]
    """Alternative names of each column that must be there, in order; a header has one of each."""
    headerless: tuple[tuple[str, ...], ...]
    """Column names of the layouts that come without a header; they differ in their length."""

    def __str__(self) -> str:
        named = ", ".join(" or ".join(repr(name) for name in names) for names in self.required)
        bare = " or ".join(" TAB ".join(columns) for columns in self.headerless)
        return f"Expected {bare} without a header, a header with {named}, or JSONL with these keys."


def rows_or_errors(path: Path, language: str, layouts: Layouts) -> Iterator[RowOrError]:
    """Yield a file's rows, and an error in place of each line that is no row, or of the rest of the file.

    Where the file has a column 'language', only rows in the given language are yielded. Cells are split at tabs and
    nothing else: quotation marks are text, as in XNLI's and PAWS-X's files. Empty lines are left out.
    """
    form = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if form not in (*_TABLES, _OBJECTS):
        yield TextError(f"{path} is neither a table (.tsv, .txt) nor JSONL by its name. {layouts}")
        return
    lines = ((f"{path}, line {number}", line) for number, line in enumerate(read_lines(path), start=1) if line)
    rows = _objects(lines, layouts) if form == _OBJECTS else _table(lines, layouts)
    try:
        yield from in_language(rows, language, str(path))
    except LingraftError as error:
        yield error


def in_language(rows: Iterable[RowOrError], language: str, origin: str) -> Iterator[RowOrError]:
    """Yield errors, and the rows whose column 'language' names the language; all rows where there is no such column."""
    others: set[str] = set()
    empty = True
    for row in rows:
        found = language if isinstance(row, LingraftError) else row.cells.get(_LANGUAGE, language)
        if found == language:
            empty = False
            yield row
        else:
            others.add(str(found))
    if empty and others:
        raise TextError(
            f"{origin} has no rows in {language!r}: its column 'language' holds {sorted(others)}. "
            "Give the file for that language, or name the language as it does."
        )
    if empty:
        raise TextError(f"{origin} holds no examples. Check the path and how the file was made.")


def find_column(row: Row, names: Sequence[str]) -> str:
    """Return the first of some alternative names that the row has a column of."""
    for name in names:
        if name in row.cells:
            return name
    wanted = " or ".join(map(repr, names))
    raise TextError(f"{row.place}: no column {wanted}, only {sorted(row.cells)}. Rename the column to one of these.")


def text_of(row: Row, name: str) -> str:
    """Return the row's text in a column, without white space around it.

    Raises:
        TextError: it is not text, for example a dictionary of all languages.
    """
    value = row.cells[name]
    if isinstance(value, Mapping):
        raise TextError(
            f"{row.place}: column {name!r} holds several languages at once ({sorted(map(str, value))[:4]}), "
            "not a text. Choose the configuration of one language, for example configuration = '{language}'."
        )
    if not isinstance(value, str):
        raise TextError(f"{row.place}: column {name!r} must hold a text, not {value!r}. Correct or remove the row.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"{row.place}: column {name!r} holds half a surrogate pair, which no text can contain. Remove it."
        ) from error
    return value.strip()


def class_of(value: Any, place: str, names: Sequence[str]) -> str:
    """Return the name of a class that a row gives by name or number.

    Args:
        value: the name, or the number.
        place: the row, for errors.
        names: names of the numbers from 0; empty where numbers are names.

    Raises:
        TextError: the value is missing, negative, too large, or no name.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise TextError(f"{place}: no label. Label it, remove it, or choose a split that has labels.")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TextError(f"{place}: the label must be a name or a whole number, not {value!r}. Correct it.")
    if isinstance(value, str) or not names:
        return str(value).strip()
    if 0 <= value < len(names):
        return names[value]
    raise TextError(
        f"{place}: label {value} is none of the dataset's {len(names)} classes, {list(names)}. "
        "A split whose labels are kept secret has -1; choose another."
    )


def class_names(features: Any, columns: Sequence[str]) -> list[str]:
    """Return the names of the class numbers in the first of some columns that is there; none if it stores names."""
    feature = next((features[column] for column in columns if column in features), None)
    return list(getattr(getattr(feature, "feature", feature), "names", None) or ())


def _table(lines: Iterator[tuple[str, str]], layouts: Layouts) -> Iterator[RowOrError]:
    first = next(lines, None)
    if first is None:
        return
    header = [cell.strip() for cell in first[1].split("\t")]
    if not all(any(name in header for name in names) for names in layouts.required):
        header = _bare_columns(*first, layouts)
        lines = chain([first], lines)
    for place, line in lines:
        cells = line.split("\t")
        if len(cells) == len(header):
            yield Row(place, dict(zip(header, cells, strict=True)))
        else:
            yield TextError(
                f"{place}: {len(cells)} columns, where the file's first line has {len(header)} ({header}). "
                "Remove or replace stray tabs."
            )


def _bare_columns(place: str, line: str, layouts: Layouts) -> list[str]:
    cells = line.split("\t")
    known = {name for names in layouts.required for name in names}
    if all(map(_NAME.fullmatch, cells)) and not known.isdisjoint(map(str.lower, cells)):
        raise TextError(f"{place}: {cells} seem to be the columns' names, but not those that are known. {layouts}")
    for columns in layouts.headerless:
        # A number tells the layout with ids from any other with as many columns.
        if len(columns) == len(cells) and (columns[0] != "id" or cells[0].isdecimal()):
            return list(columns)
    raise TextError(f"{place}: {len(cells)} columns, {[cell[:40] for cell in cells]}, of unknown meaning. {layouts}")


def _objects(lines: Iterator[tuple[str, str]], layouts: Layouts) -> Iterator[RowOrError]:
    for place, line in lines:
        try:
            found: Any = json.loads(line)
        except json.JSONDecodeError as error:
            yield TextError(f"{place}: not JSON ({error}). {layouts}")
            continue
        if isinstance(found, dict):
            yield Row(place, found)
        else:
            yield TextError(f"{place}: {type(found).__name__} instead of an object. {layouts}")
