"""Documents of one language from files of one's own: plain text, JSONL or Parquet, one file or folder a language."""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path, PurePosixPath
from typing import Any

from lingraft.errors import TextError
from lingraft.lines import COMPRESSIONS, read_lines
from lingraft.parquet import read_rows
from lingraft.places import Place, files_in, names_in

_PLAIN, _JSONL, _PARQUET = ".txt", ".jsonl", ".parquet"
_KEYS = ("text", "name", "label")
_LAYOUT = (
    "Expected one of <language>.txt, <language>.jsonl (each optionally .gz, .xz or .zst), <language>.parquet "
    "or a folder <language>/ with such files."
)
_LOOK_AHEAD = 1 << 24
"""Characters of a plain text file that are searched for a blank line."""


@dataclass(frozen=True)
class Document:
    """One text. `name` is equal across languages for parallel texts; it decides the split."""

    name: str
    text: str
    label: str | None = None


def portions(documents: Iterable[Document], characters: int) -> Iterator[list[Document]]:
    """Documents in portions of so many characters or little more: as many as a process is given at once."""
    portion: list[Document] = []
    held = 0
    for document in documents:
        portion.append(document)
        held += len(document.text) + len(document.name)
        if held >= characters:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion


def content_name(text: str) -> str:
    """Name of a document that has none: equal texts get equal names, hence the same split."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def read_documents(source: Place, language: str) -> Iterator[Document]:
    """Yield the documents in `<source>/<language>.txt|.jsonl[.gz|.xz|.zst]`, `.parquet` or `<source>/<language>/`.

    A plain text file for a language holds documents separated by blank lines or, where no blank line stands
    between lines of its first 16 million characters, one document a line. In a folder each plain text file is one
    document, named by its path without the suffix. JSONL has one object a line with the keys text and, optionally,
    name and label; Parquet has columns of these names, and its other columns are not read.
    A folder's first sub-folder is the label of documents that state none (as in scikit-learn's load_files).
    A document may be blank. Files and folders whose name starts with a dot are not read.

    Raises:
        TextError: nothing or more than one thing is there for the language, a file of another format,
            undecodable bytes, a damaged file, or JSONL or Parquet with a missing, unknown or wrong key.
    """
    yield from _read(_find(source, language))


def read_files(paths: Iterable[Place]) -> Iterator[Document]:
    """Yield the documents of files, and of folders of files, whatever they are called; see `read_documents`.

    Raises:
        TextError: one is not there, is of another format, undecodable or damaged.
    """
    for path in paths:
        yield from _read(path)


def text_files(path: Path) -> list[Path]:
    """The files that a file, or a folder of files, is read from, in that order.

    Raises:
        TextError: there is nothing, or a folder without files.
    """
    return [path / inner for inner in _inside(path)] if require_there(path).is_dir() else [path]


def require_there(path: Place) -> Place:
    """Refuse a path that leads to nothing.

    Raises:
        TextError: there is no such file or folder.
    """
    if not path.exists():
        raise TextError(f"there is no file or folder {path} to read text from. Give one that is there.")
    return path


def _read(place: Place) -> Iterator[Document]:
    if require_there(place).is_dir():
        for inner in _inside(place):
            yield from _read_inner(place, inner)
    elif _format_of(place) == _PLAIN:
        yield from _read_plain(place)
    else:
        yield from _read_records(place, None)


def _find(source: Place, language: str) -> Place:
    if not source.is_dir():
        raise TextError(f"there is no folder {source} to read text from. {_LAYOUT}")
    packed = [f"{language}{form}{packing}" for form in (_PLAIN, _JSONL) for packing in ("", *COMPRESSIONS)]
    present = names_in(source)
    found = [name for name in [language, *packed, f"{language}{_PARQUET}"] if name in present]
    if not found:
        raise TextError(f"{source} holds no text for language {language!r}, only {present}. {_LAYOUT}")
    if len(found) > 1:
        raise TextError(f"{source} holds text for language {language!r} more than once: {found}. Keep one.")
    return source / found[0]


def _format_of(path: Place) -> str:
    form = PurePosixPath(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if form not in (_PLAIN, _JSONL) and path.suffix != _PARQUET:
        raise TextError(
            f"{path} is neither plain text nor JSONL or Parquet by its name. Its end must be .txt or .jsonl, "
            "optionally followed by .gz, .xz or .zst, or it must be .parquet."
        )
    return form


def _read_inner(folder: Place, path: PurePosixPath) -> Iterator[Document]:
    label = path.parts[0] if len(path.parts) > 1 else None
    if _format_of(folder / path) == _PLAIN:
        plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
        text = "\n".join(read_lines(folder / path)).strip()
        yield Document(plain.with_suffix("").as_posix(), text, label)
    else:
        yield from _read_records(folder / path, label)


def _inside(folder: Place) -> list[PurePosixPath]:
    """Paths of a folder's files, relative to it, without hidden ones."""
    paths = files_in(folder)
    if not paths:
        raise TextError(f"{folder} holds no files. {_LAYOUT}")
    return paths


def _read_plain(path: Place) -> Iterator[Document]:
    lines = read_lines(path)
    head, paragraphs = _look_ahead(lines)
    for filled, group in groupby(chain(_drained(head), lines), key=_is_filled):
        if filled and paragraphs:
            yield _unnamed("\n".join(group))
        elif filled:
            yield from map(_unnamed, group)


def _unnamed(text: str) -> Document:
    text = text.strip()
    return Document(content_name(text), text)


def _look_ahead(lines: Iterator[str]) -> tuple[deque[str], bool]:
    """Lines taken from the iterator, and whether a blank one stands between two that are not."""
    head: deque[str] = deque()
    characters, begun, blank = 0, False, False
    for line in lines:
        head.append(line)
        characters += len(line)
        filled = _is_filled(line)
        if (filled and blank) or characters > _LOOK_AHEAD:
            return head, filled and blank
        begun = begun or filled
        blank = begun and not filled
    return head, False


def _drained(lines: deque[str]) -> Iterator[str]:
    while lines:
        yield lines.popleft()


def _is_filled(line: str) -> bool:
    return bool(line.strip())


def _read_records(path: Place, folder_label: str | None) -> Iterator[Document]:
    records = _read_jsonl(path) if _format_of(path) == _JSONL else read_rows(path, _KEYS)
    for place, found in records:
        for key, value in found.items():
            _require_string(key, value, place)
        text = found["text"].strip()
        yield Document(found.get("name", content_name(text)), text, found.get("label", folder_label))


def _read_jsonl(path: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if _is_filled(line):
            place = f"{path}, line {number}"
            yield place, _parse(line, place)


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise TextError(f"{place}: not JSON ({error}). Each line must be one object with the key 'text'.") from error
    if not isinstance(found, dict):
        raise TextError(f"{place}: {type(found).__name__} instead of an object with the key 'text'.")
    if unknown := sorted(set(found) - set(_KEYS)):
        raise TextError(f"{place}: unknown key {unknown[0]!r}. Allowed: {', '.join(_KEYS)}.")
    if "text" not in found:
        raise TextError(f"{place}: no key 'text', only {sorted(found)}. Allowed: {', '.join(_KEYS)}.")
    return found


def _require_string(key: str, value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise TextError(f"{place}: {key!r} must be a string, not {value!r}. Leave 'name' or 'label' out if unknown.")
    if key != "text" and not value.strip():
        raise TextError(f"{place}: {key!r} is empty. Leave the key out if it is unknown.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(f"{place}: {key!r} holds half a surrogate pair, which no text can contain.") from error
