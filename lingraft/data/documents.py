"""Reading of documents from the user's files: plain text, JSONL or Parquet, one file or folder a language."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from pathlib import Path, PurePosixPath
from typing import Any

from lingraft.artifacts.storage import TextPath, explain_read_errors, list_files, list_names
from lingraft.data.lines import COMPRESSIONS, read_lines
from lingraft.errors import LingraftError, MissingExtraError, TextError

_PLAIN, _JSONL, _PARQUET = ".txt", ".jsonl", ".parquet"
_KEYS = ("text", "name", "label")
LAYOUT = (
    "Expected one of <language>.txt, <language>.jsonl (each optionally .gz, .xz or .zst), <language>.parquet "
    "or a folder <language>/ with such files. Or take the language out of the recipe's targets; "
    "`lingraft init` writes a recipe for a folder of text."
)
"""Expected layout of text, which messages about missing text explain."""
_LOOK_AHEAD = 1 << 20
"""Characters at the start of a plain text file that decide whether blank lines separate its documents."""
_DOCUMENT_LINES = 100
"""Most lines of a document, on average, for blank lines to count as separators of documents."""
_DOCUMENT_CHARACTERS = 1 << 20
"""Most characters of a plain-text document, unless a single line has more."""
_LINE_BYTES = 1 << 24
STRAY_BLANKS = "plain text files with too few blank lines to separate documents: each line is one"
DIVIDED_DOCUMENTS = f"plain text documents of more than {_DOCUMENT_CHARACTERS:,} characters: divided at line ends"
SAMPLED = "files of which not everything was read"
"""Keys of the notes that readers count."""
_FILES_OF_SAMPLE = 2000
"""Most files that a sample opens."""
_ROWS_AT_ONCE = 1024
_ERROR_CHARACTERS = 1000
"""Characters that an error counts for in a sample, so that a file of nothing but errors ends too."""


@dataclass(frozen=True)
class Document:
    """A text; `name` decides the split, and is equal across languages for parallel texts."""

    name: str
    text: str
    label: str | None = None
    place: str = field(default="", compare=False, repr=False)
    """File, and line where there is one, for errors."""


DocumentOrError = Document | LingraftError
"""A document, or the error in its place."""


def batch_documents(documents: Iterable[Document], characters: int) -> Iterator[list[Document]]:
    """Yield batches of documents that have `characters` characters or little more, for a worker process each."""
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


def hash_name(text: str) -> str:
    """Return a name for a document without one, from its text: equal texts get equal names and the same split."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def find_language(source: TextPath, language: str) -> TextPath:
    """Return `<source>/<language>.txt|.jsonl[.gz|.xz|.zst]`, `<source>/<language>.parquet` or `<source>/<language>/`.

    Raises:
        TextError: nothing or more than one of these is there.
    """
    if not source.is_dir():
        wrong = f"{source} is a file, and not a folder" if source.exists() else f"there is no folder {source}"
        raise TextError(f"{wrong} to read text from. {LAYOUT}")
    packed = [f"{language}{form}{packing}" for form in (_PLAIN, _JSONL) for packing in ("", *COMPRESSIONS)]
    present = list_names(source)
    found = [name for name in [language, *packed, f"{language}{_PARQUET}"] if name in present]
    if not found:
        raise TextError(f"{source} holds no text for language {language!r}, only {present}. {LAYOUT}")
    if len(found) > 1:
        raise TextError(f"{source} holds text for language {language!r} more than once: {found}. Keep one.")
    return source / found[0]


def documents_or_errors(
    paths: Iterable[TextPath], notes: Counter[str], characters: int | None = None
) -> Iterator[DocumentOrError]:
    """Yield the documents of files and folders, and an error in place of each line or file that cannot be read.

    A plain text file holds documents separated by blank lines if that makes documents of 100 lines or less on
    average of its first million characters, and one document a line otherwise. A document of more than 2^20
    characters is divided at a line's end; its parts have one name, so that one split gets them all. A line has
    16 MiB at most.
    JSONL has one object a line with the keys text and, optionally, name and label; Parquet has columns of these
    names, and its other columns are not read.
    A folder's files are read like these. But if it has sub-folders, the first is the label of documents that state
    none (as in scikit-learn's load_files), and each of its plain text files is one document, named by its path
    without the suffix, of 2^20 characters at most.
    A document may be blank. Files and folders whose name starts with a dot are not read.

    Args:
        paths: files, and folders of files.
        notes: counts `STRAY_BLANKS` and `DIVIDED_DOCUMENTS`, and `SAMPLED` if not everything was read.
        characters: number to read of each path, or a little more, spread over its files; everything if None.
    """
    for path in paths:
        yield from _yield_error_last(_read(path, notes, characters))


def sample_documents(
    documents: Iterable[DocumentOrError], notes: Counter[str], characters: int | None
) -> Iterator[DocumentOrError]:
    """Yield documents until they have `characters` characters, if not None, and note `SAMPLED` if there are more."""
    held = 0
    for found in documents:
        if characters is not None and held >= characters:
            notes[SAMPLED] += 1
            return
        held += len(found.text) + 1 if isinstance(found, Document) else _ERROR_CHARACTERS
        yield found


def text_files(path: Path) -> list[Path]:
    """Return the files that a path is read from, in order: itself, or all files of a folder.

    Raises:
        TextError: there is nothing, or a folder without files.
    """
    return [path / inner for inner in _paths_inside(path)] if _require_exists(path).is_dir() else [path]


def _require_exists(path: TextPath) -> TextPath:
    if not path.exists():
        raise TextError(f"there is no file or folder {path} to read text from. Give one that is there.")
    return path


def _yield_error_last(documents: Iterator[DocumentOrError]) -> Iterator[DocumentOrError]:
    """Yield documents, and last the error that ended them, if one did."""
    try:
        yield from documents
    except LingraftError as error:
        yield error


def _read(place: TextPath, notes: Counter[str], characters: int | None) -> Iterator[DocumentOrError]:
    if not _require_exists(place).is_dir():
        yield from sample_documents(_yield_error_last(_read_file(place, notes)), notes, characters)
        return
    inside = _paths_inside(place)
    labelled = any(len(path.parts) > 1 for path in inside)
    if characters is not None and len(inside) > _FILES_OF_SAMPLE:
        inside = inside[:: -(-len(inside) // _FILES_OF_SAMPLE)]
        notes[SAMPLED] += 1
    share = characters and -(-characters // len(inside))
    for inner in inside:
        label = inner.parts[0] if len(inner.parts) > 1 else None
        documents = _read_file(place / inner, notes, label, inner if labelled else None)
        yield from sample_documents(_yield_error_last(documents), notes, share)


def _read_file(
    path: TextPath, notes: Counter[str], label: str | None = None, whole_as: PurePosixPath | None = None
) -> Iterator[DocumentOrError]:
    """Yield a file's documents; a plain text file is one document of the name `whole_as` if that is given."""
    if _format_of(path) != _PLAIN:
        yield from _read_records(path, label)
    elif whole_as:
        yield _read_whole(path, whole_as, label)
    else:
        yield from _read_plain(path, notes)


def _format_of(path: TextPath) -> str:
    form = PurePosixPath(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if form not in (_PLAIN, _JSONL) and path.suffix != _PARQUET:
        raise TextError(
            f"{path} is neither plain text nor JSONL or Parquet by its name. Its end must be .txt or .jsonl, "
            "optionally followed by .gz, .xz or .zst, or it must be .parquet."
        )
    return form


def _read_whole(path: TextPath, inner: PurePosixPath, label: str | None) -> Document:
    lines, characters = [], 0
    for line in read_lines(path, _LINE_BYTES):
        lines.append(line)
        characters += len(line) + 1
        if characters > _DOCUMENT_CHARACTERS:
            raise TextError(
                f"{path} has more than {_DOCUMENT_CHARACTERS:,} characters, and in a folder with sub-folders, which "
                "are labels, each plain text file is one document. Divide it; or, if the corpus has no labels, put "
                "all files into one folder, or name them by a pattern ([text] kind = 'files'): then each is read as "
                "many documents."
            )
    plain = inner.with_suffix("") if inner.suffix in COMPRESSIONS else inner
    return Document(plain.with_suffix("").as_posix(), "\n".join(lines).strip(), label, str(path))


def _paths_inside(folder: TextPath) -> list[PurePosixPath]:
    """Return the paths of a folder's files, relative to it, without hidden ones."""
    paths = list_files(folder)
    if not paths:
        raise TextError(f"{folder} holds no files. {LAYOUT}")
    return paths


def _read_plain(path: TextPath, notes: Counter[str]) -> Iterator[Document]:
    lines, place = read_lines(path, _LINE_BYTES), str(path)
    head, paragraphs = _look_ahead(lines, notes)
    for filled, group in groupby(chain(head, lines), key=lambda line: bool(line.strip())):
        if filled and paragraphs:
            yield from _divide(group, notes, place)
        elif filled:
            for line in group:
                yield Document(hash_name(line.strip()), line.strip(), place=place)


def _divide(lines: Iterable[str], notes: Counter[str], place: str) -> Iterator[Document]:
    """Yield the document that lines make, or several parts of one name if it is too long."""
    name = ""
    for number, part in enumerate(_parts(lines)):
        text = part.strip()
        name = name or hash_name(text)
        notes[DIVIDED_DOCUMENTS] += number == 1
        yield Document(name, text, place=place)


def _parts(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    characters = 0
    for line in lines:
        if held and characters + len(line) > _DOCUMENT_CHARACTERS:
            yield "\n".join(held)
            held, characters = [], 0
        held.append(line)
        characters += len(line) + 1
    yield "\n".join(held)


def _look_ahead(lines: Iterator[str], notes: Counter[str]) -> tuple[list[str], bool]:
    """Return lines taken from the iterator, and whether blank lines separate documents."""
    head: list[str] = []
    characters = filled = gaps = 0
    blank = False
    for line in lines:
        head.append(line)
        characters += len(line)
        if line.strip():
            gaps += blank and filled > 0
            filled += 1
        blank = not line.strip()
        if characters > _LOOK_AHEAD:
            break
    separated = gaps > 0 and filled <= (gaps + 1) * _DOCUMENT_LINES
    notes[STRAY_BLANKS] += gaps > 0 and not separated
    return head, separated


def _read_records(path: TextPath, folder_label: str | None) -> Iterator[DocumentOrError]:
    for place, record in _json_lines(path) if _format_of(path) == _JSONL else _parquet_rows(path):
        try:
            found = _parse(record, place) if isinstance(record, str) else record
            for key, value in found.items():
                _require_string(key, value, place)
        except TextError as error:
            yield error
            continue
        text = found["text"].strip()
        yield Document(found.get("name", hash_name(text)), text, found.get("label", folder_label), place)


def _json_lines(path: TextPath) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path, _LINE_BYTES), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def _parquet_rows(path: TextPath) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the values of each row, without those that are null; one row group is read at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        with explain_read_errors(path), path.open("rb") as stream:
            file = ParquetFile(stream)
            names = file.schema_arrow.names
            if "text" not in names:
                raise TextError(f"{path} has no column 'text'; it has {names}. Rename the one that holds the text.")
            wanted = [name for name in _KEYS if name in names]
            numbers = count(1)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=wanted):
                    for row, number in zip(batch.to_pylist(), numbers, strict=False):
                        found = {name: value for name, value in row.items() if value is not None}
                        yield f"{path}, row {number}", {"text": ""} | found
    except pyarrow.ArrowException as error:
        raise TextError(f"{path} is damaged or no Parquet: {error}. Write or fetch it again.") from error


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
