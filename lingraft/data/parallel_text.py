"""Reading of sentences with their translations, from the layouts that they come in.

- A table: source<TAB>target a line, or .csv; a first line that names the columns is left out. If it does, there may be
  more columns, in any order.
- Two files line by line, the source's first (Moses, OPUS).
- .tmx: units with both languages.
- .jsonl: objects with the keys source and target, or the languages' tags, perhaps within "translation" (as on the hub).

Pairs are streamed, so that a corpus of any size takes little memory. Files are plain, .gz, .xz or .zst, local or in a
storage that fsspec supports.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

from lingraft.artifacts.storage import parse_path
from lingraft.config.translations import ParallelText
from lingraft.data.languages import is_variety
from lingraft.data.lines import read_lines, suffix_of
from lingraft.data.pair_columns import Languages, column_names, find_sides
from lingraft.data.records import json_objects, table_cells
from lingraft.data.translation_memory import translation_units
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


def read_pairs(files: ParallelText, languages: Languages, left_out: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield sentence pairs that have text on both sides, each once; of two files, the source's comes first."""
    counts = Counter[str]() if left_out is None else left_out
    return filter_pairs(raise_errors(pairs_or_errors(files, languages, counts)), file_names(files), counts)


def pairs_or_errors(files: ParallelText, languages: Languages, left_out: Counter[str]) -> Iterator[PairOrError]:
    """Yield all pairs, including those with an empty side, and an error for each that cannot be read."""
    try:
        if not isinstance(files, str):
            yield from _read_two_files(*files)
        elif (form := suffix_of(PurePosixPath(files))) == ".tmx":
            yield from _read_units(files, languages, left_out)
        elif form == ".jsonl":
            yield from _read_objects(files, languages)
        else:
            yield from _read_columns(files, languages, left_out)
    except LingraftError as error:
        yield error


def is_held_out(pair: Pair) -> bool:
    """Return whether a pair is held out; its source side decides, so that repetitions stay together."""
    digest = hashlib.blake2b(pair.source.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_EVERY == 0


def without_held_out(pairs: Iterable[Pair], left_out: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield the pairs that may be learned from; the others are counted in `left_out`."""
    for pair in pairs:
        if not is_held_out(pair):
            yield pair
        elif left_out is not None:
            left_out[HELD_OUT] += 1


def file_names(files: ParallelText) -> str:
    """Return the names of a parallel text's files, for messages."""
    return files if isinstance(files, str) else " and ".join(files)


def filter_pairs(pairs: Iterable[Pair], origin: str, left_out: Counter[str]) -> Iterator[Pair]:
    """Leave out pairs with an empty side, and repeated pairs.

    Of more than a million different pairs, duplicates of the first million are found.
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
    """Return an error message if there are no pairs or too many with an empty side; else an empty string."""
    if count == 0:
        return f"{origin}: there are no pairs. Give a file that has some, or none (--pairs, --dictionary)."
    if empty > MOST_EMPTY * count:
        return (
            f"{origin}: {empty:,} of {count:,} pairs ({empty / count:.0%}) have an empty side, more than "
            f"{MOST_EMPTY:.0%}. Check that the lines are each other's translations, and remove those without one."
        )
    return ""


def _read_columns(file: str, languages: Languages, left_out: Counter[str]) -> Iterator[PairOrError]:
    sides, width = (0, 1), 2
    for number, (place, columns) in enumerate(_rows(file, languages)):
        if number == 0 and (named := find_sides(tuple(columns), languages)):
            _require_in_order(columns, named, place)
            sides, width = named, len(columns)
            left_out[column_names(columns)] += 1
            continue
        if len(columns) == width:
            yield Pair(columns[sides[0]].strip(), columns[sides[1]].strip(), place)
            continue
        if not any(columns):
            yield Pair("", "", place)
            continue
        counted = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        mark = "a comma or semicolon" if suffix_of(PurePosixPath(file)) == ".csv" else "one tab"
        wanted = f"2, source and target with {mark} between them" if width == 2 else f"the {width} that the first has"
        if number == 0 and len(columns) == 1:
            yield TextError(
                f"{place}: {counted} instead of {wanted}. If each language has a file of its own, give both, the "
                "source's first (--pairs twice; a list in a recipe)."
            )
            return
        named_too = " Or name all columns in the first line, the languages' by their tags." if number == 0 else ""
        yield TextError(f"{place}: {counted} instead of {wanted}. Correct the line, or remove it.{named_too}")


def _rows(file: str, languages: Languages) -> Iterator[tuple[str, list[str]]]:
    path = parse_path(file)
    if suffix_of(path) == ".csv":
        yield from table_cells(path, lambda cells: len(cells) == 2 or bool(find_sides(tuple(cells), languages)))
        return
    for number, line in enumerate(read_lines(path, _LINE_BYTES), start=1):
        yield f"{file}, line {number}", line.split("\t") if line.strip() else []


def _require_in_order(columns: Sequence[str], sides: tuple[int, int], place: str) -> None:
    if len(columns) == 2 and sides != (0, 1):
        named = " and ".join(repr(name.strip()) for name in columns)
        raise TextError(f"{place}: the columns are {named}. Give the source language's first.")


def _read_objects(file: str, languages: Languages) -> Iterator[PairOrError]:
    for place, found in json_objects(parse_path(file)):
        if isinstance(found, LingraftError):
            yield found
            continue
        inner = found.get("translation")
        record = inner if isinstance(inner, dict) else found
        names = tuple(record)
        sides = find_sides(names, languages)
        texts = [record[names[side]] for side in sides] if sides else []
        if not sides:
            others = {"source": "target", "target": "source"}
            missing = [repr(key) for key, other in others.items() if not find_sides((*names, other), languages)]
            yield TextError(
                f"{place}: no key {' and no key '.join(missing)}, only {list(names)}. Name the texts 'source' and "
                f"'target', or by their languages, {languages[0]!r} and {languages[1]!r}."
            )
        elif all(_is_unicode(text) for text in texts):
            yield Pair(texts[0].strip(), texts[1].strip(), place)
        else:
            yield TextError(f"{place}: {texts} are not two texts. Correct the line, or remove it.")


def _is_unicode(text: object) -> bool:
    """Whether it is text, without half a surrogate pair, which JSON may hold and no file can."""
    return isinstance(text, str) and not any("\ud800" <= character <= "\udfff" for character in text)


def _read_units(file: str, languages: Languages, left_out: Counter[str]) -> Iterator[PairOrError]:
    tags: set[str] = set()
    empty = True
    for unit in translation_units(parse_path(file)):
        tags.update(unit.texts)
        sides = [next((tag for tag in unit.texts if is_variety(tag, language)), None) for language in languages]
        if sides[0] is None or sides[1] is None or sides[0] == sides[1]:
            left_out[f"units without {languages[0]!r} or {languages[1]!r}"] += 1
            continue
        empty = False
        yield Pair(unit.texts[sides[0]], unit.texts[sides[1]], f"{file}, unit {unit.number}")
    if empty and tags:
        yield TextError(
            f"{file} has no units in both {languages[0]!r} and {languages[1]!r}: its languages are {sorted(tags)}. "
            "Give a file of these two."
        )


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
