"""Removal of repeated paragraphs: documents are kept on disk until all are read, then yielded without repetitions."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from numpy import bool_
from numpy.typing import NDArray

from lingraft.data.cleaning.corpus_stats import CorpusStats
from lingraft.data.cleaning.duplicates import DuplicateFinder
from lingraft.data.preprocessing import KEY_BYTES, PreparedDocument


def deduplicate(
    documents: Iterable[PreparedDocument], folder: Path, census: CorpusStats
) -> Iterator[PreparedDocument | None]:
    """Yield each document without the paragraphs that occurred before, in it or in an earlier one.

    Args:
        documents: documents in the order of the text.
        folder: empty folder with room for all documents and 24 bytes a paragraph.
        census: counts the paragraphs that are dropped.

    Yields:
        Each document, or None in place of one of which nothing is left.
    """
    keys, waiting = folder / "keys", folder / "documents"
    keys.mkdir()
    duplicates = DuplicateFinder(keys)
    with waiting.open("wb") as stream:
        for document in documents:
            duplicates.add(document.keys)
            _put(document, stream)
    flags = _Flags(duplicates.repeated_flags())
    with waiting.open("rb") as stream:
        while head := stream.readline():
            split, label, characters, paragraphs = json.loads(head)
            document = PreparedDocument(split, label, characters, stream.readline(), b"")
            repeated = flags.take(paragraphs)
            yield document.without_duplicates(repeated, census) if any(repeated) else document


def _put(document: PreparedDocument, stream: IO[bytes]) -> None:
    head = document.split, document.label, document.characters, len(document.keys) // KEY_BYTES
    stream.write(json.dumps(head).encode("ascii") + b"\n" + document.line)


class _Flags:
    """Reader of runs of flags that returns as many as each document has paragraphs."""

    def __init__(self, runs: Iterator[NDArray[bool_]]) -> None:
        self._runs = runs
        self._run = b""
        self._start = 0

    def take(self, count: int) -> bytes:
        """Return the next flags, a byte each."""
        while len(self._run) < self._start + count:
            self._run = self._run[self._start :] + next(self._runs).tobytes()
            self._start = 0
        self._start += count
        return self._run[self._start - count : self._start]
