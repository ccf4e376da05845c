"""Streaming of a Parquet file's rows, one row group at a time."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, BinaryIO

from lingraft.artifacts.storage import TextPath, explain_read_errors
from lingraft.errors import MissingExtraError, TextError

_ROWS_AT_ONCE = 1024


def read_rows(path: TextPath, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each row, for messages, and its values by column, without those that are null.

    Args:
        path: the file.
        columns: columns to read. The first is required, and is "" where it is null.

    Raises:
        MissingExtraError: the package `pyarrow` is not installed.
        TextError: the file cannot be read, is damaged, or lacks the first column.
    """
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        with explain_read_errors(path), path.open("rb") as stream:
            yield from _rows(stream, path, columns)
    except pyarrow.ArrowException as error:
        raise TextError(f"{path} is damaged or no Parquet: {error}. Write or fetch it again.") from error


def _rows(stream: BinaryIO, path: TextPath, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(stream)
    names = file.schema_arrow.names
    if columns[0] not in names:
        raise TextError(f"{path} has no column {columns[0]!r}; it has {names}. Rename the one that holds the text.")
    wanted = [name for name in columns if name in names]
    numbers = count(1)
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=wanted):
            for row, number in zip(batch.to_pylist(), numbers, strict=False):
                found = {name: value for name, value in row.items() if value is not None}
                yield f"{path}, row {number}", {columns[0]: ""} | found
