"""Search for exact duplicates among any number of paragraphs in bounded memory, by sorting their keys into files.

Two paragraphs are duplicates if their 128-bit keys are equal. In memory are a million keys at a time; above that they
lie on disk, 24 bytes a paragraph, in 256 files by their first byte. Each file is then sorted by itself, and one with
more than four million different keys is divided again by the next byte. Places of repetitions are written to disk too
and read in the order of the text. So the first of several equal paragraphs stays, however the work was divided.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingraft.data.cleaning.corpus_stats import CorpusStats
from lingraft.data.preprocessing import KEY_BYTES, NOTHING_LEFT, PreparedDocument

_KEY = np.dtype([("low", "<u8"), ("high", "<u8")])
_ENTRY = np.dtype([("low", "<u8"), ("high", "<u8"), ("place", "<u8")])
_IN_MEMORY = 1 << 20
"""Keys, 24 MB; the most that is sorted at a time, beside those of a file that are known to differ."""
_DIFFERENT = 1 << 22
"""Keys of a file that are held at a time, 96 MB."""
_WINDOW = 1 << 22
"""Paragraphs whose duplicates are looked up at a time."""

Entries = NDArray[np.void]


def deduplicate(
    documents: Iterable[PreparedDocument], folder: Path, census: CorpusStats, dropped: Counter[str]
) -> Iterator[PreparedDocument]:
    """Yield documents without the paragraphs that occurred before, in them or in an earlier one.

    Documents wait on disk until all are read.

    Args:
        documents: documents in the order of the text.
        folder: empty folder with room for all documents and 24 bytes a paragraph.
        census: counts the paragraphs that are dropped.
        dropped: counts the documents of which nothing is left.
    """
    keys, waiting = folder / "keys", folder / "documents"
    keys.mkdir()
    duplicates = DuplicateFinder(keys)
    with waiting.open("wb") as stream:
        for document in documents:
            duplicates.add(document.keys)
            head = document.split, document.label, document.characters, len(document.keys) // KEY_BYTES
            stream.write(json.dumps(head).encode("ascii") + b"\n" + document.line)
    runs, run = duplicates.repeated_flags(), memoryview(b"")
    with waiting.open("rb") as stream:
        while line := stream.readline():
            split, label, characters, paragraphs = json.loads(line)
            document = PreparedDocument(split, label, characters, stream.readline(), b"")
            while len(run) < paragraphs:
                run = memoryview(bytes(run) + next(runs).tobytes())
            repeated, run = bytes(run[:paragraphs]), run[paragraphs:]
            kept = document.without_duplicates(repeated, census) if any(repeated) else document
            if kept:
                yield kept
            else:
                dropped[NOTHING_LEFT] += 1


class DuplicateFinder:
    """Finder of repeated keys: `add` takes keys in the order of the text, `repeated_flags` marks the repetitions."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder for exclusive use, on a disk with room for 24 bytes a paragraph."""
        self._folder = folder
        self._pending = bytearray()
        self._spilt = 0
        """Number of keys on disk."""

    def add(self, keys: bytes) -> None:
        """Add the keys of the next paragraphs, 16 bytes each."""
        self._pending += keys
        if len(self._pending) >= _IN_MEMORY * _KEY.itemsize:
            self._spill()

    def repeated_flags(self) -> Iterator[NDArray[np.bool_]]:
        """Yield runs of flags, in the order of the text: whether each paragraph repeats an earlier one."""
        if self._spilt:
            self._spill()
            for bucket in sorted(self._folder.iterdir()):
                for places in _repetitions(bucket, 1):
                    self._note(places)
        else:
            self._note(_first_and_repeated(self._entries())[1])
        for start in range(0, self._taken, _WINDOW):
            yield self._window(start)

    @property
    def _taken(self) -> int:
        return self._spilt + len(self._pending) // _KEY.itemsize

    def _entries(self) -> Entries:
        """Return the keys in memory, with their places."""
        keys = np.frombuffer(bytes(self._pending), _KEY)
        entries = np.empty(len(keys), _ENTRY)
        entries["low"], entries["high"] = keys["low"], keys["high"]
        entries["place"] = np.arange(self._spilt, self._spilt + len(keys))
        return entries

    def _spill(self) -> None:
        entries = self._entries()
        _divide(entries, self._folder / "keys", 0)
        self._spilt += len(entries)
        self._pending.clear()

    def _note(self, places: NDArray[np.uint64]) -> None:
        for window in np.unique(places // _WINDOW):
            with self._noted(int(window) * _WINDOW).open("ab") as stream:
                stream.write(places[places // _WINDOW == window].tobytes())

    def _window(self, start: int) -> NDArray[np.bool_]:
        flags = np.zeros(min(_WINDOW, self._taken - start), np.bool_)
        if self._noted(start).exists():
            flags[np.fromfile(self._noted(start), np.uint64) - np.uint64(start)] = True
        return flags

    def _noted(self, start: int) -> Path:
        return self._folder / f"places-{start}"


def _repetitions(bucket: Path, depth: int) -> Iterator[NDArray[np.uint64]]:
    """Yield places of repetitions in a file of entries whose keys share `depth` bytes, and delete the file."""
    different = np.empty(0, _ENTRY)
    for entries in _read(bucket):
        different, places = _first_and_repeated(np.concatenate([different, entries]))
        if len(different) > _DIFFERENT:
            break
        yield places
    else:
        bucket.unlink()
        return
    for entries in _read(bucket):
        _divide(entries, bucket, depth)
    bucket.unlink()
    for part in sorted(bucket.parent.glob(f"{bucket.name}-*")):
        yield from _repetitions(part, depth + 1)


def _first_and_repeated(entries: Entries) -> tuple[Entries, NDArray[np.uint64]]:
    """Return the first entry of each key, and the places of all others."""
    # This sort is stable, and equal keys stand in the order of the text.
    entries = entries[np.lexsort((entries["low"], entries["high"]))]
    first = np.ones(len(entries), np.bool_)
    first[1:] = (entries["low"][1:] != entries["low"][:-1]) | (entries["high"][1:] != entries["high"][:-1])
    return entries[first], entries["place"][~first]


def _divide(entries: Entries, stem: Path, depth: int) -> None:
    """Append entries to files by byte number `depth` of their keys, each in the order in which they come."""
    byte = (entries["low"] >> np.uint64(8 * depth)).astype(np.uint8)
    order = np.argsort(byte, kind="stable")
    ends = np.searchsorted(byte[order], np.arange(257))
    for value, start, end in zip(count(), ends, ends[1:], strict=False):
        if start < end:
            with stem.with_name(f"{stem.name}-{value:02x}").open("ab") as stream:
                stream.write(entries[order[start:end]].tobytes())


def _read(bucket: Path) -> Iterator[Entries]:
    with bucket.open("rb") as stream:
        while portion := stream.read(_IN_MEMORY * _ENTRY.itemsize):
            yield np.frombuffer(portion, _ENTRY)
