"""Assignment of documents to splits."""

import hashlib
from typing import Literal

from lingraft.config.text import Split

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


def split_of(name: str, split: Split) -> SplitName:
    """Return the split of a document: its name's SHA-256 is a point in [0, 1), where test lies lowest, then dev.

    The result is the same in every language and on every machine, whatever else is in the corpus.
    """
    point = int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big") / 2**64
    if point < split.test_share:
        return "test"
    return "dev" if point < split.test_share + split.dev_share else "train"
