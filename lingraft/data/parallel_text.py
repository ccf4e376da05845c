"""Reading of sentences with their translations: one file of source<TAB>target, or two aligned files (Moses, OPUS).

Pairs are streamed, so that a corpus of any size takes little memory. Files are plain, .gz, .xz or .zst, local or in a
storage that fsspec supports.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from lingraft.artifacts.storage import parse_path
from lingraft.config.translations import ParallelText
from lingraft.data.lines import read_lines
from lingraft.errors import LingraftError, TextError, raise_errors

EMPTY = "pairs with an empty side"
DUPLICATE = "pairs that were there before"
HELD_OUT = "pairs that alignment is measured on"
"""Reasons for leaving out a pair."""
MOST_EMPTY = 0.1
"""Largest share of pairs with an empty side; above it, lines are probably not each other's translations."""
HELD_OUT_EVERY = 20
"""Number of pairs of which one is held out to measure alignment on."""
_LINE_BYTES = 1 << 20
_REMEMBERED = 1_000_000
"""Most distinct pairs that are remembered to find duplicates: some 100 MB of hashes."""


class Pair(NamedTuple):
    """A text and its translation: a sentence or a word."""

    source: str
    target: str
    place: str
    """File and line, or the dictionary's entry."""

    @property
    def empty(self) -> bool:
        """Whether one of its sides is empty."""
        return not self.source or not self.target


PairOrError = Pair | LingraftError
"""A pair, or the error in its place."""


def read_pairs(files: ParallelText, left_out: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield sentence pairs that have text on both sides, each once.

    Args:
        files: one file of source<TAB>target a line, or a file in the source language and one in the target language.
        left_out: counts the pairs that are left out, by `EMPTY` and `DUPLICATE`.

    Raises:
        TextError: a file cannot be read, holds no pairs or a line without exactly two columns; two files differ in
            their number of lines; or more than a tenth of the pairs have an empty side.
    """
    return filter_pairs(
        raise_errors(pairs_or_errors(files)), file_names(files), Counter() if left_out is None else left_out
    )


def pairs_or_errors(files: ParallelText) -> Iterator[PairOrError]:
    """Yield all pairs, including those with an empty side, and an error for each that cannot be read."""
    try:
        yield from _read_columns(files) if isinstance(files, str) else _read_two_files(*files)
    except LingraftError as error:
        yield error


def is_held_out(pair: Pair) -> bool:
    """Return whether a pair is held out; its source side decides, so that repetitions stay together."""
    digest = hashlib.blake2b(pair.source.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_EVERY == 0


def file_names(files: ParallelText) -> str:
    """Return the names of a parallel text's files, for messages."""
    return files if isinstance(files, str) else " and ".join(files)


def filter_pairs(pairs: Iterable[Pair], origin: str, left_out: Counter[str]) -> Iterator[Pair]:
    """Leave out pairs with an empty side, and repeated pairs.

    Of more than a million different pairs, duplicates of the first million are found.

    Args:
        pairs: sentences or words.
        origin: names of their files, for messages.
        left_out: counts the pairs that are left out, by `EMPTY` and `DUPLICATE`.

    Raises:
        TextError: there are no pairs, or more than `MOST_EMPTY` of them have an empty side.
    """
    seen: set[int] = set()
    count = empty = 0
    for pair in pairs:
        count += 1
        if not pair.source or not pair.target:
            empty += 1
            left_out[EMPTY] += 1
            continue
        key = hash((pair.source, pair.target))
        if key in seen:
            left_out[DUPLICATE] += 1
            continue
        if len(seen) < _REMEMBERED:
            seen.add(key)
        yield pair
    if message := empty_pairs_error(origin, count, empty):
        raise TextError(message)


def empty_pairs_error(origin: str, count: int, empty: int) -> str:
    """Return an error message if there are no pairs or too many with an empty side; else an empty string.

    Args:
        origin: names of their files.
        count: number of pairs, including those with an empty side.
        empty: number of pairs with an empty side.
    """
    if count == 0:
        return f"{origin}: there are no pairs. Give a file with one pair a line, or remove it from [alignment]."
    if empty > MOST_EMPTY * count:
        return (
            f"{origin}: {empty:,} of {count:,} pairs ({empty / count:.0%}) have an empty side, more than "
            f"{MOST_EMPTY:.0%}. Check that the lines are each other's translations, and remove those without one."
        )
    return ""


def _read_columns(file: str) -> Iterator[PairOrError]:
    for number, line in enumerate(read_lines(parse_path(file), _LINE_BYTES), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        place = f"{file}, line {number}"
        if len(columns) == 2:
            yield Pair(columns[0].strip(), columns[1].strip(), place)
            continue
        counted = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        error = f"{place}: {counted} instead of 2, source and target with one tab between them"
        if number == 1 and len(columns) == 1:
            yield TextError(f"{error}. If each language has a file of its own, give both: [source file, target file].")
            return
        yield TextError(f"{error}. Correct the line, or remove it.")


def _read_two_files(source: str, target: str) -> Iterator[PairOrError]:
    lines = (read_lines(parse_path(file), _LINE_BYTES) for file in (source, target))
    counts = [0, 0]
    for sides in zip_longest(*lines):
        counts = [count + (side is not None) for count, side in zip(counts, sides, strict=True)]
        if counts[0] == counts[1]:
            yield Pair(sides[0].strip(), sides[1].strip(), f"{source} and {target}, line {counts[0]}")
    if counts[0] != counts[1]:
        yield TextError(
            f"{source} has {counts[0]:,} lines, but {target} has {counts[1]:,}: line by line they are no translations "
            "of each other. Give two files that were made together."
        )
