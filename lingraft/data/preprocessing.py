"""Documents as they are written to their splits: cleaned, encoded, and with what is needed to find duplicates."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingraft.config.text import Cleaning, Split
from lingraft.data.cleaning.census import INVISIBLE, Census
from lingraft.data.cleaning.characters import tidied
from lingraft.data.cleaning.quality import fault
from lingraft.data.documents import Document, portions
from lingraft.data.splits import SplitName, split_of

KEY_BYTES = 16
"""Of a paragraph: 128 bits of BLAKE2b. Two different ones of 10^12 share a key with a probability of 10^-15."""
EMPTY, NOTHING_LEFT = "empty document", "nothing left of document"
DUPLICATE = "duplicate"
_BATCH_CHARACTERS = 1 << 19
_encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


class Prepared(NamedTuple):
    """A document that is ready to be written."""

    split: SplitName
    label: str | None
    characters: int
    line: bytes
    """JSON with the keys name, text and label."""
    keys: bytes
    """`KEY_BYTES` for each paragraph, in order; none where duplicates are not looked for."""

    def without(self, duplicates: bytes, census: Census) -> "Prepared | None":
        """The document without some of its paragraphs; None if nothing is left of it.

        Args:
            duplicates: for each paragraph a byte that is not 0 if it goes.
            census: counts those that go.
        """
        document = Document(**json.loads(self.line))
        kept = []
        for paragraph, is_duplicate in zip(document.text.split("\n"), duplicates, strict=True):
            if is_duplicate:
                census.take_back(DUPLICATE, paragraph)
            else:
                kept.append(paragraph)
        return _prepared(Document(document.name, "\n".join(kept), document.label), self.split) if kept else None


@dataclass(frozen=True)
class Batch:
    """What came of some documents."""

    documents: list[Prepared]
    dropped: dict[str, int]
    """Documents that went, by reason."""
    census: Census


@dataclass(frozen=True)
class Preparation:
    """What is done to each document; picklable, so that processes share the work."""

    split: Split
    cleaning: Cleaning | None

    def __call__(self, documents: Sequence[Document]) -> Batch:
        """Clean and encode documents, in their order."""
        batch = Batch([], {EMPTY: 0, NOTHING_LEFT: 0}, Census())
        for document in documents:
            text = self._cleaned(document.text, batch.census)
            if not text:
                batch.dropped[NOTHING_LEFT if document.text else EMPTY] += 1
                continue
            split = split_of(document.name, self.split)
            batch.documents.append(_prepared(Document(document.name, text, document.label), split, self._keys(text)))
        return batch

    def _cleaned(self, text: str, census: Census) -> str:
        if self.cleaning is None:
            return text
        return "\n".join(filter(None, (_kept(line, self.cleaning, census) for line in text.split("\n"))))

    def _keys(self, text: str) -> bytes:
        if self.cleaning is None or not self.cleaning.deduplicate:
            return b""
        return b"".join(key_of(paragraph) for paragraph in text.split("\n"))


def key_of(paragraph: str) -> bytes:
    """What tells a paragraph from all others."""
    return hashlib.blake2b(paragraph.encode("utf-8"), digest_size=KEY_BYTES).digest()


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents in portions of half a million characters or little more."""
    return portions(documents, _BATCH_CHARACTERS)


def _kept(line: str, cleaning: Cleaning, census: Census) -> str | None:
    """A line as it is to be kept; None if it is not."""
    paragraph = tidied(line, cleaning.unicode, census.characters)
    if not paragraph:
        census.paragraphs.drop(INVISIBLE, 1 if line.strip() else 0)
        return None
    if reason := fault(paragraph, cleaning):
        census.drop(reason, paragraph)
        return None
    census.keep(paragraph)
    return paragraph


def _prepared(document: Document, split: SplitName, keys: bytes = b"") -> Prepared:
    record = {"name": document.name, "text": document.text, "label": document.label}
    return Prepared(split, document.label, len(document.text), _encoded(record).encode("utf-8") + b"\n", keys)
