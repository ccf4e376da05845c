"""Sentences whose words carry tags: PAN-X (WikiANN), CoNLL-2002 and 2003, and rows of Hugging Face datasets.

What is read: a word a line, its first column the word and its last the tag, divided by tabs or spaces; blank lines
between sentences; CoNLL's -DOCSTART- lines are no words. WikiANN's own files write "de:Berlin" for "Berlin".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from lingraft.data.lines import read_lines
from lingraft.errors import LingraftError, TextError, raise_errors
from lingraft.tasks.rows import Row, class_of, column

_DOCUMENT_START = "-DOCSTART-"
_TAG = re.compile(r"O|[BIES]-.+")
_PREFIX = re.compile(r"([a-z]{2,3}(?:-[a-z-]+)?):.")
_WORDS, _TAGS = ("tokens", "words"), ("ner_tags", "tags")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and the tag of each."""

    place: str = field(repr=False)
    """What to call it in errors; no part of its `repr`, which is the same wherever the file lies."""
    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_sentences(path: Path, language: str) -> list[Sentence]:
    """Sentences of a file.

    Raises:
        TextError: the file cannot be read, holds no sentence, one in another language by its prefix, or a word without
            a tag or with an unknown one.
    """
    return list(_without_prefix(list(raise_errors(sentences_or_errors(path))), language, path))


def sentences_or_errors(path: Path) -> Iterator[Sentence | LingraftError]:
    """Yield the sentences of a file as they stand there, and an error in place of each that is none."""
    try:
        yield from _sentences(path)
    except LingraftError as error:
        yield error


def _sentences(path: Path) -> Iterator[Sentence | LingraftError]:
    lines = enumerate(read_lines(path), start=1)
    groups = groupby(lines, key=lambda line: bool(line[1].strip()) and not line[1].startswith(_DOCUMENT_START))
    empty = True
    for filled, group in groups:
        if filled:
            empty = False
            yield _sentence_or_error(list(group), path)
    if empty:
        raise TextError(
            f"{path} holds no sentences. Expected a word and its tag a line, blank lines between sentences."
        )


def _sentence_or_error(lines: list[tuple[int, str]], path: Path) -> Sentence | LingraftError:
    try:
        return _sentence(lines, path)
    except TextError as error:
        return error


def sentences_of(rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str]) -> list[Sentence]:
    """Sentences from a dataset's rows with words in 'tokens' (or 'words') and tags in 'ner_tags' (or 'tags').

    Args:
        rows: the rows.
        origin: what to call the dataset in errors.
        names: names of its tag numbers; empty where it stores the tags themselves.

    Raises:
        TextError: a column is missing, words and tags differ in number, or a tag is unknown.
    """
    return [_of_row(Row(f"{origin}, row {number}", cells), names) for number, cells in enumerate(rows)]


def _sentence(lines: list[tuple[int, str]], path: Path) -> Sentence:
    words, tags = zip(*(_columns(line, f"{path}, line {number}") for number, line in lines), strict=True)
    return Sentence(f"{path}, line {lines[0][0]}", words, tags)


def _columns(line: str, place: str) -> tuple[str, str]:
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    if len(cells) < 2:
        raise TextError(f"{place}: {line[:40]!r} has no tag. Expected a word, then a tab or a space, then its tag.")
    return cells[0].strip(), _tag(cells[-1].strip(), place)


def _tag(tag: str, place: str) -> str:
    if not _TAG.fullmatch(tag):
        raise TextError(
            f"{place}: {tag!r} is no tag of a named entity: 'O', or B-, I-, E- or S- and a kind, such as 'B-PER'. "
            "Convert the tags, or check which column they are in."
        )
    return tag


def _without_prefix(sentences: list[Sentence], language: str, path: Path) -> Iterator[Sentence]:
    """Take "de:" off, if every word of the file begins with it."""
    first = _PREFIX.match(sentences[0].words[0])
    if first is None or not all(word.startswith(f"{first[1]}:") for found in sentences for word in found.words):
        yield from sentences
        return
    if first[1] != language:
        raise TextError(
            f"{path} is in {first[1]!r} by the prefix of its words, not in {language!r}. Give the file for that."
        )
    for sentence in sentences:
        yield replace(sentence, words=tuple(word.removeprefix(f"{language}:") for word in sentence.words))


def _of_row(row: Row, names: Sequence[str]) -> Sentence:
    words = [_word(word, row.place) for word in row.cells[column(row, _WORDS)]]
    tags = [_tag(class_of(tag, row.place, names), row.place) for tag in row.cells[column(row, _TAGS)]]
    if len(words) != len(tags):
        raise TextError(f"{row.place}: {len(words)} words, but {len(tags)} tags. Give each word one tag.")
    return Sentence(row.place, tuple(words), tuple(tags))


def _word(word: Any, place: str) -> str:
    if not isinstance(word, str):
        raise TextError(f"{place}: {word!r} among the words is no text. Correct or remove the row.")
    return word.strip()
