"""Which split a document belongs to."""

import hashlib
from typing import Literal

from lingraft.config.text import Split

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


def split_of(name: str, split: Split) -> SplitName:
    """Split that a document belongs to: its name's SHA-256 as a point in [0, 1); test lies lowest, then dev.

    The same in every language and on every machine, whatever else is in the corpus.
    """
    point = int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big") / 2**64
    if point < split.test_share:
        return "test"
    return "dev" if point < split.test_share + split.dev_share else "train"
