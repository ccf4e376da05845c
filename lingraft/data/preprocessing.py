"""Cleaning of documents: paragraphs are normalised, and those that are of no use or came before are dropped."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lingraft.config.text import Cleaning
from lingraft.data.cleaning.corpus_stats import INVISIBLE, CorpusStats
from lingraft.data.cleaning.duplicates import SeenParagraphs
from lingraft.data.cleaning.paragraphs import normalise, reject_reason
from lingraft.data.documents import Document

EMPTY, NOTHING_LEFT = "empty document", "nothing left of document"
DUPLICATE = "duplicate"


def clean_documents(
    documents: Iterable[Document], cleaning: Cleaning | None, census: CorpusStats, dropped: Counter[str]
) -> Iterator[Document]:
    """Yield documents as a text artifact has them, in their order.

    Args:
        documents: documents, taken as they are needed.
        cleaning: the recipe's [text.cleaning]; None: paragraphs stay as they are.
        census: counts paragraphs and characters.
        dropped: counts documents of which nothing is left.
    """
    seen = SeenParagraphs() if cleaning else None
    for document in documents:
        text = document.text
        if cleaning:
            lines = (_clean_line(line, cleaning, census, seen) for line in text.split("\n"))
            text = "\n".join(filter(None, lines))
        if text:
            yield replace(document, text=text)
        else:
            dropped[NOTHING_LEFT if document.text else EMPTY] += 1


def _clean_line(line: str, cleaning: Cleaning, census: CorpusStats, seen: SeenParagraphs | None) -> str | None:
    """Return a line as it is to be kept; None if it is to be dropped."""
    paragraph = normalise(line, census.characters)
    if not paragraph:
        census.paragraphs.drop(INVISIBLE, 1 if line.strip() else 0)
        return None
    reason = reject_reason(paragraph, cleaning)
    if not reason and seen and not seen.add(paragraph):
        reason = DUPLICATE
    if reason:
        census.drop(reason, paragraph)
        return None
    census.keep(paragraph)
    return paragraph
