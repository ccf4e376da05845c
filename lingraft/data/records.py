"""Records of JSONL, Parquet, CSV and TSV files, streamed, each with its place for errors."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Any

from lingraft.artifacts.storage import TextPath, explain_read_errors
from lingraft.data.lines import read_lines, suffix_of
from lingraft.errors import MissingExtraError, TextError

RECORD_BYTES = 1 << 24
"""Most bytes of a line, and most characters of a table's cell."""
_DELIMITERS, _LINES_TO_CHOOSE = ",;\t", 20
_ROWS_AT_ONCE = 1024

RecordOrError = dict[str, Any] | TextError


def json_objects(path: TextPath) -> Iterator[tuple[str, RecordOrError]]:
    """Yield the objects of a JSONL file, and an error in place of each line that is none; blank lines are left out."""
    for number, line in enumerate(read_lines(path, RECORD_BYTES), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            found: Any = json.loads(line)
        except json.JSONDecodeError as error:
            found = TextError(f"{place}: not JSON ({error}). Each line must be one object.")
        if not isinstance(found, dict | TextError):
            found = TextError(f"{place}: {type(found).__name__} instead of an object. Each line must be one object.")
        yield place, found


def parquet_rows(path: TextPath, column: str, others: Sequence[str] = ()) -> Iterator[tuple[str, RecordOrError]]:
    """Yield the rows of a Parquet file, without values that are null; one row group is read at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        with explain_read_errors(path), path.open("rb") as stream:
            file = ParquetFile(stream)
            names = file.schema_arrow.names
            _require_column(column, names, str(path))
            wanted = [column, *(name for name in others if name in names)]
            numbers = count(1)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=wanted):
                    for row, number in zip(batch.to_pylist(), numbers, strict=False):
                        yield f"{path}, row {number}", {key: value for key, value in row.items() if value is not None}
    except pyarrow.ArrowException as error:
        raise TextError(f"{path} is damaged or no Parquet: {error}. Write or fetch it again.") from error


def table_rows(path: TextPath, column: str, others: Sequence[str] = ()) -> Iterator[tuple[str, RecordOrError]]:
    """Yield the rows of a CSV or TSV file with a header, and an error in place of each with more or fewer cells."""
    rows = table_cells(path, lambda names: column in map(str.strip, names))
    place, first = next(rows, (str(path), []))
    names = [name.strip() for name in first]
    _require_column(column, names, place)
    kept = [(name, number) for number, name in enumerate(names) if name in (column, *others)]
    for place, cells in rows:
        if len(cells) == len(names):
            yield place, {name: cells[number] for name, number in kept if name == column or cells[number].strip()}
        else:
            yield (
                place,
                TextError(
                    f"{place}: {len(cells)} columns, where the first line has {len(names)} ({names}). Correct the row."
                ),
            )


def table_cells(path: TextPath, is_header: Callable[[list[str]], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each row of a table that is not blank.

    TSV is split at tabs and nothing else: quotation marks are text. Cells of CSV may stand in quotation marks; between
    them stand commas, semicolons or tabs: those that make a header, or as many cells as the first line has, of most of
    the first lines.
    """
    lines = read_lines(path, RECORD_BYTES)
    if suffix_of(path) == ".tsv":
        yield from (
            (f"{path}, line {number}", line.split("\t")) for number, line in enumerate(lines, 1) if line.strip()
        )
        return
    csv.field_size_limit(RECORD_BYTES)
    head = [*islice(lines, _LINES_TO_CHOOSE)]

    def fit(mark: str) -> tuple[int, bool]:
        rows = [next(csv.reader([line], delimiter=mark), []) for line in head]
        return sum(is_header(row) or 1 < len(row) == len(rows[0]) for row in rows), any(map(is_header, rows[:1]))

    delimiter = max(_DELIMITERS, key=fit)
    reader = csv.reader((f"{line}\n" for line in chain(head, lines)), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield f"{path}, line {reader.line_num}", cells
    except csv.Error as error:
        raise TextError(
            f"{path} is no CSV up to line {reader.line_num}: {error}. Put cells with quotation marks or line ends into "
            "quotation marks, and double those within."
        ) from error


def _require_column(column: str, names: Sequence[str], place: str) -> None:
    if column not in names:
        raise TextError(
            f"{place} has no column {column!r}; it has {list(names)}. Name the one that holds the text: text.column in "
            "a recipe, or --text-column."
        )
