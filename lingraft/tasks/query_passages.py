"""Queries with the passage that answers each: query TAB passage, JSONL with these keys, or rows of a dataset."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError, TextError
from lingraft.tasks.rows import Layouts, Row, find_column, rows_or_errors, text_of

_LAYOUTS = Layouts(
    (("query", "question", "anchor"), ("passage", "document", "positive", "answer")), (("query", "passage"),)
)


@dataclass(frozen=True, slots=True)
class QueryPassage:
    """A query and the passage that answers it."""

    place: str = field(repr=False)
    """Name in errors; no part of its `repr`, which does not depend on where the file lies."""
    query: str
    passage: str


def query_passages_or_errors(path: Path, language: str) -> Iterator[QueryPassage | LingraftError]:
    """Yield a file's queries with their passages in a language, and an error in place of each line that is none."""
    for row in rows_or_errors(path, language, _LAYOUTS):
        try:
            yield row if isinstance(row, LingraftError) else _query_passage(row)
        except TextError as error:
            yield error


def query_passages_of_rows(rows: Iterable[Mapping[str, Any]], origin: str) -> Iterator[QueryPassage]:
    """Yield queries with their passages from a dataset's rows."""
    for number, cells in enumerate(rows):
        yield _query_passage(Row(f"{origin}, row {number}", cells))


def _query_passage(row: Row) -> QueryPassage:
    query, passage = (text_of(row, find_column(row, names)) for names in _LAYOUTS.required)
    if not query or not passage:
        raise TextError(f"{row.place}: the query is {query!r} and the passage {passage!r}. Fill in both, or remove it.")
    return QueryPassage(row.place, query, passage)
