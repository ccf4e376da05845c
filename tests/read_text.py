"""Documents of files and folders, or the first error among them."""

from collections import Counter
from collections.abc import Iterable, Iterator

from lingraft.artifacts.storage import TextPath
from lingraft.data.documents import Document, documents_or_errors, find_language
from lingraft.errors import raise_errors


def read_files(paths: Iterable[TextPath], notes: Counter[str] | None = None) -> Iterator[Document]:
    """Documents of files, and of folders of files."""
    return raise_errors(documents_or_errors(paths, Counter() if notes is None else notes))


def read_documents(source: TextPath, language: str, notes: Counter[str] | None = None) -> Iterator[Document]:
    """Documents of a language in a folder."""
    yield from read_files([find_language(source, language)], notes)
