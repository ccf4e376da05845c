"""Preprocessing of documents: cleaning, choice of split, encoding as JSON, and keys for finding duplicates."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingraft.config.text import Cleaning, Split
from lingraft.data.cleaning.corpus_stats import INVISIBLE, CorpusStats
from lingraft.data.cleaning.paragraphs import normalise, reject_reason
from lingraft.data.documents import Document
from lingraft.data.splits import SplitName, split_of

KEY_BYTES = 16
"""Bytes of a paragraph's BLAKE2b key. Any two of 10^12 different paragraphs share one with probability 10^-15."""
EMPTY, NOTHING_LEFT = "empty document", "nothing left of document"
DUPLICATE = "duplicate"
BATCH_CHARACTERS = 1 << 19
"""Characters of the documents that a worker process gets at once."""
_encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


class PreparedDocument(NamedTuple):
    """A document that is ready to be written."""

    split: SplitName
    label: str | None
    characters: int
    line: bytes
    """JSON with the keys name, text and label."""
    keys: bytes
    """`KEY_BYTES` for each paragraph, in order; empty if duplicates are kept."""

    def without_duplicates(self, duplicates: bytes, census: CorpusStats) -> "PreparedDocument | None":
        """Return the document without paragraphs whose byte is not 0, which are counted; None if nothing is left."""
        document = Document(**json.loads(self.line))
        kept = []
        for paragraph, is_duplicate in zip(document.text.split("\n"), duplicates, strict=True):
            if is_duplicate:
                census.take_back(DUPLICATE, paragraph)
            else:
                kept.append(paragraph)
        return _encode_document(Document(document.name, "\n".join(kept), document.label), self.split) if kept else None


@dataclass(frozen=True)
class PreparedBatch:
    """Preprocessed documents of a batch, and counts of what was dropped."""

    documents: list[PreparedDocument]
    dropped: dict[str, int]
    """Number of documents dropped, by reason."""
    census: CorpusStats


@dataclass(frozen=True)
class Preprocessor:
    """Function that preprocesses documents; picklable, for worker processes."""

    split: Split
    cleaning: Cleaning | None

    def __call__(self, documents: Sequence[Document]) -> PreparedBatch:
        """Clean and encode documents, in their order."""
        batch = PreparedBatch([], {EMPTY: 0, NOTHING_LEFT: 0}, CorpusStats())
        for document in documents:
            text = self._cleaned(document.text, batch.census)
            if not text:
                batch.dropped[NOTHING_LEFT if document.text else EMPTY] += 1
                continue
            split = split_of(document.name, self.split)
            batch.documents.append(
                _encode_document(Document(document.name, text, document.label), split, self._keys(text))
            )
        return batch

    def _cleaned(self, text: str, census: CorpusStats) -> str:
        if self.cleaning is None:
            return text
        return "\n".join(filter(None, (_clean_line(line, self.cleaning, census) for line in text.split("\n"))))

    def _keys(self, text: str) -> bytes:
        if self.cleaning is None or not self.cleaning.deduplicate:
            return b""
        return b"".join(paragraph_key(paragraph) for paragraph in text.split("\n"))


def paragraph_key(paragraph: str) -> bytes:
    """Return a hash of `KEY_BYTES` that identifies a paragraph."""
    return hashlib.blake2b(paragraph.encode("utf-8"), digest_size=KEY_BYTES).digest()


def _clean_line(line: str, cleaning: Cleaning, census: CorpusStats) -> str | None:
    """Return a line as it is to be kept; None if it is to be dropped."""
    paragraph = normalise(line, cleaning.unicode, census.characters)
    if not paragraph:
        census.paragraphs.drop(INVISIBLE, 1 if line.strip() else 0)
        return None
    if reason := reject_reason(paragraph, cleaning):
        census.drop(reason, paragraph)
        return None
    census.keep(paragraph)
    return paragraph


def _encode_document(document: Document, split: SplitName, keys: bytes = b"") -> PreparedDocument:
    record = {"name": document.name, "text": document.text, "label": document.label}
    return PreparedDocument(split, document.label, len(document.text), _encoded(record).encode("utf-8") + b"\n", keys)
