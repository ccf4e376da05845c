"""Sentences whose words carry tags: PAN-X (WikiANN), CoNLL-2002 and 2003, parts of speech; files and datasets.

A file has a word a line, its first column the word and its last the tag, divided by tabs or spaces; blank lines stand
between sentences; CoNLL's -DOCSTART- lines are no words. WikiANN's own files write "de:Berlin" for "Berlin". Of
Universal Dependencies' files, which end in .conllu, words are read with their parts of speech (UPOS); comments, ranges
of words and empty nodes are not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from lingraft.data.lines import read_lines
from lingraft.errors import LingraftError, TextError
from lingraft.tasks.rows import Row, class_of, find_column

_CONLLU, _CONLLU_COLUMNS = ".conllu", 10
"""Ending of Universal Dependencies' files, and the number of their columns."""
_DOCUMENT_START = "-DOCSTART-"
_TAG = re.compile(r"O|[BIES]-.+")
_PREFIX = re.compile(r"([a-z]{2,3}(?:-[a-z-]+)?):.")
_WORDS = "tokens", "words"
ENTITY_COLUMNS = "ner_tags", "tags"
WORD_TAG_COLUMNS = "upos", "pos_tags", "tags"
"""Columns of datasets that hold tags of named entities, and of words."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and the tag of each."""

    place: str = field(repr=False)
    """Name in errors; no part of its `repr`, which does not depend on where the file lies."""
    words: tuple[str, ...]
    tags: tuple[str, ...]


def sentences_or_errors(path: Path, named_entities: bool = True) -> Iterator[Sentence | LingraftError]:
    """Yield the sentences of a file as they stand there, and an error in place of each that is none.

    Args:
        path: the file.
        named_entities: whether tags must be those of named entities; else they may be any.
    """
    empty = True
    try:
        lines = enumerate(read_lines(path), start=1)
        for filled, group in groupby(lines, key=_is_word):
            if filled:
                empty = False
                yield _sentence_or_error(list(group), path, named_entities)
    except LingraftError as error:
        yield error
        return
    if empty:
        yield TextError(
            f"{path} holds no sentences. Expected a word and its tag a line, blank lines between sentences."
        )


def sentences_of_rows(
    rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str], named_entities: bool = True
) -> Iterator[Sentence]:
    """Yield sentences from a dataset's rows with words in 'tokens' (or 'words') and tags in one of `ENTITY_COLUMNS`, or
    of `WORD_TAG_COLUMNS`.

    Args:
        rows: cells by column.
        origin: name of the dataset, for messages.
        names: names of its tag numbers; empty where it stores the tags themselves.
        named_entities: whether tags must be those of named entities; else they may be any.
    """
    columns = ENTITY_COLUMNS if named_entities else WORD_TAG_COLUMNS
    for number, cells in enumerate(rows):
        row = Row(f"{origin}, row {number}", cells)
        words = [_word(word, row.place) for word in cells[find_column(row, _WORDS)]]
        found = [class_of(tag, row.place, names) for tag in cells[find_column(row, columns)]]
        tags = [_tag(tag, row.place, named_entities) for tag in found]
        if len(words) != len(tags):
            raise TextError(f"{row.place}: {len(words)} words, but {len(tags)} tags. Give each word one tag.")
        yield Sentence(row.place, tuple(words), tuple(tags))


def without_prefix(sentences: list[Sentence], language: str, path: Path) -> list[Sentence]:
    """Return the sentences of a file without WikiANN's "de:" if every word of the file begins with it."""
    first = _PREFIX.match(sentences[0].words[0])
    if first is None or not all(word.startswith(f"{first[1]}:") for found in sentences for word in found.words):
        return sentences
    if first[1] != language:
        raise TextError(
            f"{path} is in {first[1]!r} by the prefix of its words, not in {language!r}. Give the file for that."
        )
    return [replace(each, words=tuple(word.removeprefix(f"{language}:") for word in each.words)) for each in sentences]


def _is_word(numbered_line: tuple[int, str]) -> bool:
    line = numbered_line[1]
    return bool(line.strip()) and not line.startswith(_DOCUMENT_START)


def _sentence_or_error(lines: list[tuple[int, str]], path: Path, named_entities: bool) -> Sentence | LingraftError:
    cells_of = _conllu_cells if _CONLLU in path.suffixes else _cells
    words, tags = [], []
    try:
        if cells_of is _cells:
            _require_words_first([line for _, line in lines], f"{path}, line {lines[0][0]}")
        for number, line in lines:
            place = f"{path}, line {number}"
            for word, tag in cells_of(line, place):
                words.append(word)
                tags.append(_tag(tag, place, named_entities))
    except TextError as error:
        return error
    return Sentence(f"{path}, line {lines[0][0]}", tuple(words), tuple(tags))


def _require_words_first(lines: list[str], place: str) -> None:
    """Refuse lines that count their words before them, as GermEval's do."""
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    counts = [row[0].strip() for row in rows]
    if len(rows) > 1 and counts == [str(number) for number in range(1, len(rows) + 1)] and min(map(len, rows)) > 2:
        raise TextError(
            f"{place}: the first of {len(rows[0])} columns counts the words of a sentence. Keep the words and one "
            "column of tags: `grep -v '^#' FILE | cut -f 2,3` keeps GermEval's words and outer tags."
        )


def _cells(line: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield the word of a line with its tag."""
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    if len(cells) < 2:
        raise TextError(f"{place}: {line[:40]!r} has no tag. Expected a word, then a tab or a space, then its tag.")
    yield cells[0].strip(), cells[-1].strip()


def _conllu_cells(line: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield the word of a line of CoNLL-U with its part of speech; nothing for comments, ranges and empty nodes."""
    number, *cells = line.split("\t")
    if line.startswith("#") or "-" in number or "." in number:
        return
    if len(cells) != _CONLLU_COLUMNS - 1:
        raise TextError(
            f"{place}: {1 + len(cells)} columns instead of CoNLL-U's {_CONLLU_COLUMNS}, with a tab between each two. "
            "Correct the line, or name a file of words and tags otherwise than .conllu."
        )
    yield cells[0], cells[2]


def _tag(tag: str, place: str, named_entities: bool) -> str:
    if named_entities and not _TAG.fullmatch(tag):
        raise TextError(
            f"{place}: {tag!r} is no tag of a named entity: 'O', or B-, I-, E- or S- and a kind, such as 'B-PER'. "
            "Convert the tags, or check which column they are in; parts of speech need evaluation = 'words'."
        )
    if not tag:
        raise TextError(f"{place}: a word has an empty tag. Give it one, or remove the sentence.")
    if not named_entities and _TAG.fullmatch(tag):
        raise TextError(
            f"{place}: {tag!r} is the tag of a named entity, and evaluation 'words' judges tags that each stand for "
            "one word. Leave evaluation out, or check which column the tags are in: a file's last."
        )
    return tag


def _word(word: Any, place: str) -> str:
    if not isinstance(word, str):
        raise TextError(f"{place}: {word!r} among the words is no text. Correct or remove the row.")
    return word.strip()
