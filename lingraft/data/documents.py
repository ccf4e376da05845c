"""Reading of documents from the user's files: plain text, pages, or records with a column of text."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import PurePosixPath
from typing import Any

from lingraft.artifacts.storage import TextPath, list_files, list_names
from lingraft.config.text import TEXT_COLUMN
from lingraft.data.lines import COMPRESSIONS, read_lines, suffix_of
from lingraft.data.pages import html_paragraphs, markdown_paragraphs
from lingraft.data.records import RECORD_BYTES, RecordOrError, json_objects, parquet_rows, table_rows
from lingraft.errors import LingraftError, TextError

PLAIN, _MARKDOWN, _HTML = (".txt",), (".md", ".markdown"), (".html", ".htm", ".xhtml")
_JSONL, _PARQUET, TABLES = (".jsonl",), (".parquet",), (".csv", ".tsv")
FORMATS = (*PLAIN, *_MARKDOWN, *_HTML, *_JSONL, *_PARQUET, *TABLES)
"""Ends of the names of files that are read as text."""
_KINDS = f"{', '.join(FORMATS)}, all but .parquet optionally followed by .gz, .xz or .zst"
_NAME, _LABEL = "name", "label"
"""Columns beside that of the text."""
LAYOUT = (
    f"Expected one of <language>{_KINDS}, or a folder <language>/ with such files. Or take the language out of the "
    "recipe's targets; `lingraft init` writes a recipe for a folder of text."
)
"""Expected layout of text, which messages about missing text explain."""
_LOOK_AHEAD = 1 << 20
"""Characters at the start of a plain text file that decide whether blank lines separate its documents."""
_DOCUMENT_LINES = 100
"""Most lines of a document, on average, for blank lines to count as separators of documents."""
_DOCUMENT_CHARACTERS = 1 << 20
"""Most characters of a plain-text document, unless a single line has more."""
STRAY_BLANKS = "plain text files with too few blank lines to separate documents: each line is one"
DIVIDED_DOCUMENTS = f"plain text documents of more than {_DOCUMENT_CHARACTERS:,} characters: divided at line ends"
SAMPLED = "files of which not everything was read"
"""Keys of the notes that readers count."""
_FILES_OF_SAMPLE = 2000
"""Most files that a sample opens."""
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
    """Yield batches of documents that have `characters` characters or little more."""
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
    """Return the file `<source>/<language>` of one of `FORMATS`, perhaps compressed, or the folder of that name."""
    if not source.is_dir():
        wrong = f"{source} is a file, and not a folder" if source.exists() else f"there is no folder {source}"
        raise TextError(f"{wrong} to read text from. {LAYOUT}")
    packed = [f"{language}{form}{packing}" for form in FORMATS for packing in ("", *COMPRESSIONS)]
    present = list_names(source)
    found = [name for name in [language, *packed] if name in present]
    if not found:
        raise TextError(f"{source} holds no text for language {language!r}, only {present}. {LAYOUT}")
    if len(found) > 1:
        raise TextError(f"{source} holds text for language {language!r} more than once: {found}. Keep one.")
    return source / found[0]


def documents_or_errors(
    paths: Iterable[TextPath], notes: Counter[str], characters: int | None = None, column: str = TEXT_COLUMN
) -> Iterator[DocumentOrError]:
    """Yield the documents of files and folders, and an error in place of each line or file that cannot be read.

    A plain text file holds documents separated by blank lines if that makes documents of 100 lines or less on
    average of its first million characters, and one document a line otherwise. A line has 16 MiB at most.
    A page, Markdown or HTML, is one document, whose lines are its paragraphs.
    JSONL has one object a line with the text and, optionally, the keys name and label; Parquet, CSV and TSV have
    columns of these names. Other keys and columns are not read.
    A document of more than 2^20 characters is divided at a line's end; its parts have one name, so that one split gets
    them all.
    A folder's files are read like these; pages are named by their paths, and files of other formats are left out. But
    if it has sub-folders, the first is the label of documents that state none (as in scikit-learn's load_files), and
    each of its plain text files is one document, named by its path without the suffix.
    A document may be blank. Files and folders whose name starts with a dot are not read.

    Args:
        paths: files, and folders of files.
        notes: counts `STRAY_BLANKS`, `DIVIDED_DOCUMENTS` and files that are left out, and `SAMPLED` if not everything
            was read.
        characters: number to read of each path, or a little more, spread over its files; everything if None.
        column: column or key that holds the text.
    """
    for path in paths:
        yield from _yield_error_last(_read(path, notes, characters, column))


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


def text_files(path: TextPath) -> list[TextPath]:
    """Return the files that a path is read from, in order: itself, or those of a folder that hold text by name."""
    return [path / inner for inner in _paths_inside(path, Counter())] if _require_exists(path).is_dir() else [path]


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


def _read(place: TextPath, notes: Counter[str], characters: int | None, column: str) -> Iterator[DocumentOrError]:
    if not _require_exists(place).is_dir():
        yield from sample_documents(_yield_error_last(_read_file(place, notes, column)), notes, characters)
        return
    inside = _paths_inside(place, notes)
    labelled = any(len(path.parts) > 1 for path in inside)
    if characters is not None and len(inside) > _FILES_OF_SAMPLE:
        inside = inside[:: -(-len(inside) // _FILES_OF_SAMPLE)]
        notes[SAMPLED] += 1
    share = characters and -(-characters // len(inside))
    for inner in inside:
        label = inner.parts[0] if len(inner.parts) > 1 else None
        named = labelled or suffix_of(inner) not in PLAIN
        documents = _read_file(place / inner, notes, column, label, _name_of(inner) if named else "")
        yield from sample_documents(_yield_error_last(documents), notes, share)


def _read_file(
    path: TextPath, notes: Counter[str], column: str, label: str | None = None, name: str = ""
) -> Iterator[DocumentOrError]:
    """Yield a file's documents; a page, and a plain text file with a name, are one document of that name."""
    form = suffix_of(path)
    if not _is_text(path):
        raise TextError(f"{path} holds no text by its name, whose end must be one of {_KINDS}.")
    if form in (*_JSONL, *_PARQUET, *TABLES):
        yield from _read_records(path, column, label)
    elif form in _HTML:
        yield from _divide(html_paragraphs(path), notes, str(path), name, label)
    elif form in _MARKDOWN:
        yield from _divide(markdown_paragraphs(path), notes, str(path), name, label)
    elif name:
        yield from _divide(read_lines(path, RECORD_BYTES), notes, str(path), name, label)
    else:
        yield from _read_plain(path, notes)


def _is_text(path: TextPath | PurePosixPath) -> bool:
    form = suffix_of(path)
    return form in FORMATS and (form not in _PARQUET or path.suffix not in COMPRESSIONS)


def _name_of(inner: PurePosixPath) -> str:
    plain = inner.with_suffix("") if inner.suffix in COMPRESSIONS else inner
    return plain.with_suffix("").as_posix()


def _paths_inside(folder: TextPath, notes: Counter[str]) -> list[PurePosixPath]:
    """Return the paths of a folder's files that hold text, relative to it, without hidden ones; others are noted."""
    paths = list_files(folder)
    found = [path for path in paths if _is_text(path)]
    others = Counter(path.suffix or path.name for path in paths if not _is_text(path))
    counted = ", ".join(f"{count:,} of {end}" for end, count in others.most_common())
    if not found:
        only = f" of text, only {counted}" if others else ""
        raise TextError(f"{folder} holds no files{only}. Give files of text (--text), whose names end in {_KINDS}.")
    if others:
        notes[f"files left out ({counted}), whose names end in none of {', '.join(FORMATS)}"] += others.total()
    return found


def _read_plain(path: TextPath, notes: Counter[str]) -> Iterator[Document]:
    lines, place = read_lines(path, RECORD_BYTES), str(path)
    head, paragraphs = _look_ahead(lines, notes)
    for filled, group in groupby(chain(head, lines), key=lambda line: bool(line.strip())):
        if filled and paragraphs:
            yield from _divide(group, notes, place)
        elif filled:
            for line in group:
                yield Document(hash_name(line.strip()), line.strip(), place=place)


def _divide(
    lines: Iterable[str], notes: Counter[str], place: str, name: str = "", label: str | None = None
) -> Iterator[Document]:
    """Yield the document that lines make, or several parts of one name if it is too long."""
    for number, part in enumerate(_parts(lines)):
        text = part.strip()
        name = name or hash_name(text)
        notes[DIVIDED_DOCUMENTS] += number == 1
        yield Document(name, text, label, place)


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


def _read_records(path: TextPath, column: str, folder_label: str | None) -> Iterator[DocumentOrError]:
    form, others = suffix_of(path), (_NAME, _LABEL)
    if form in _JSONL:
        records = json_objects(path)
    else:
        records = (parquet_rows if form in _PARQUET else table_rows)(path, column, others)
    for place, found in records:
        try:
            yield _document(found, place, column, folder_label, strict=form in _JSONL)
        except TextError as error:
            yield error


def _document(found: RecordOrError, place: str, column: str, folder_label: str | None, *, strict: bool) -> Document:
    """The document of a record; a `strict` one must have the text."""
    if isinstance(found, TextError):
        raise found
    allowed = (column, _NAME, _LABEL)
    if strict and column not in found:
        raise TextError(f"{place}: no key {column!r}, only {sorted(found)}. Allowed: {', '.join(allowed)}.")
    for key in allowed:
        if key in found:
            _require_string(key, found[key], place, may_be_blank=key == column)
    text = found.get(column, "").strip()
    return Document(found.get(_NAME, hash_name(text)), text, found.get(_LABEL, folder_label), place)


def _require_string(key: str, value: Any, place: str, *, may_be_blank: bool) -> None:
    if not isinstance(value, str):
        raise TextError(f"{place}: {key!r} must be a string, not {value!r}. Leave 'name' or 'label' out if unknown.")
    if not may_be_blank and not value.strip():
        raise TextError(f"{place}: {key!r} is empty. Leave the key out if it is unknown.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(f"{place}: {key!r} holds half a surrogate pair, which no text can contain.") from error
