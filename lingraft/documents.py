"""Documents of one language from files of one's own: plain text or JSONL, one file or folder a language."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from lingraft.errors import TextError
from lingraft.lines import COMPRESSIONS, read_lines

_FORMATS = (".txt", ".jsonl")
_KEYS = ("text", "name", "label")
_LAYOUT = (
    "Expected one of <language>.txt, <language>.jsonl (each optionally .gz, .xz or .zst) "
    "or a folder <language>/ with such files."
)


@dataclass(frozen=True)
class Document:
    """One text. `name` is equal across languages for parallel texts; it decides the split."""

    name: str
    text: str
    label: str | None = None


def content_name(text: str) -> str:
    """Name of a document that has none: equal texts get equal names, hence the same split."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def read_documents(source: Path, language: str) -> Iterator[Document]:
    """Yield the documents in `<source>/<language>.txt|.jsonl[.gz|.xz|.zst]` or `<source>/<language>/`.

    A plain text file for a language holds documents separated by blank lines or, where no blank line stands
    between lines, one document a line. In a folder each plain text file is one document, named by its path
    without the suffix. JSONL has one object a line with the keys text and, optionally, name and label.
    A folder's first sub-folder is the label of documents that state none (as in scikit-learn's load_files).
    A document may be blank. Files and folders whose name starts with a dot are not read.

    Raises:
        TextError: nothing or more than one thing is there for the language, a file of another format,
            undecodable bytes, a damaged compressed file, or JSONL with a missing, unknown or wrong key.
    """
    yield from _read(_find(source, language))


def read_files(paths: Sequence[Path]) -> Iterator[Document]:
    """Yield the documents of files, and of folders of files, whatever they are called; see `read_documents`.

    Raises:
        TextError: one is not there, is of another format, undecodable or damaged.
    """
    for path in paths:
        yield from _read(require_there(path))


def text_files(path: Path) -> list[Path]:
    """The files that a file, or a folder of files, is read from, in that order.

    Raises:
        TextError: there is nothing, or a folder without files.
    """
    return [path / inner for inner in _inside(path)] if require_there(path).is_dir() else [path]


def require_there(path: Path) -> Path:
    """Refuse a path that leads to nothing.

    Raises:
        TextError: there is no such file or folder.
    """
    if not path.exists():
        raise TextError(f"there is no file or folder {path} to read text from. Give one that is there.")
    return path


def _read(place: Path) -> Iterator[Document]:
    if place.is_dir():
        yield from _read_folder(place)
    elif _format_of(place) == ".jsonl":
        yield from _read_jsonl(place, None)
    else:
        yield from _read_plain(place)


def _find(source: Path, language: str) -> Path:
    if not source.is_dir():
        raise TextError(f"there is no folder {source} to read text from. {_LAYOUT}")
    names = [f"{language}{form}{packing}" for form in _FORMATS for packing in ("", *COMPRESSIONS)]
    found = [source / name for name in [language, *names] if (source / name).exists()]
    if not found:
        present = sorted(path.name for path in source.iterdir())
        raise TextError(f"{source} holds no text for language {language!r}, only {present}. {_LAYOUT}")
    if len(found) > 1:
        raise TextError(
            f"{source} holds text for language {language!r} more than once: {[path.name for path in found]}. Keep one."
        )
    return found[0]


def _format_of(path: Path) -> str:
    form = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if form not in _FORMATS:
        raise TextError(
            f"{path} is neither plain text nor JSONL by its name. Its end must be .txt or .jsonl, "
            "optionally followed by .gz, .xz or .zst."
        )
    return form


def _read_folder(folder: Path) -> Iterator[Document]:
    for path in _inside(folder):
        label = path.parts[0] if len(path.parts) > 1 else None
        if _format_of(path) == ".jsonl":
            yield from _read_jsonl(folder / path, label)
        else:
            plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
            text = "\n".join(read_lines(folder / path)).strip()
            yield Document(plain.with_suffix("").as_posix(), text, label)


def _inside(folder: Path) -> list[Path]:
    """Paths of a folder's files, relative to it, without hidden ones."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    if not visible:
        raise TextError(f"{folder} holds no files. {_LAYOUT}")
    return visible


def _read_plain(path: Path) -> Iterator[Document]:
    paragraphs = _has_blank_line(path)
    for filled, lines in groupby(read_lines(path), key=_is_filled):
        if filled and paragraphs:
            yield _unnamed("\n".join(lines))
        elif filled:
            yield from map(_unnamed, lines)


def _unnamed(text: str) -> Document:
    text = text.strip()
    return Document(content_name(text), text)


def _has_blank_line(path: Path) -> bool:
    """Whether a blank line stands between lines of text."""
    groups = (None for filled, _ in groupby(read_lines(path), key=_is_filled) if filled)
    return len(list(islice(groups, 2))) == 2


def _is_filled(line: str) -> bool:
    return bool(line.strip())


def _read_jsonl(path: Path, folder_label: str | None) -> Iterator[Document]:
    for number, line in enumerate(read_lines(path), start=1):
        if _is_filled(line):
            found = _parse(line, f"{path}, line {number}")
            text = found["text"].strip()
            yield Document(found.get("name", content_name(text)), text, found.get("label", folder_label))


def _parse(line: str, place: str) -> dict[str, str]:
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
    for key, value in found.items():
        _require_string(key, value, place)
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
