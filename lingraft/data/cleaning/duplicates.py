"""Search for exact duplicates among any number of paragraphs, with bounded memory."""

import hashlib
import sqlite3

_KEY_BYTES = 16
"""Bytes of a paragraph's BLAKE2b key. Any two of 10^12 different paragraphs share one with probability 10^-15."""


class SeenParagraphs:
    """Keys of the paragraphs so far, in a temporary database of SQLite, which is on disk once it is large."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, paragraph: str) -> bool:
        """Add a paragraph, and return whether it is new."""
        key = hashlib.blake2b(paragraph.encode(), digest_size=_KEY_BYTES).digest()
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1
