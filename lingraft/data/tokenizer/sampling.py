"""Sampling of the lines that a tokenizer is trained on, evenly over the whole text."""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lingraft.artifacts.artifact import Artifact
from lingraft.data.text import read_split

_SEED = 20_221_210
_LARGE_SCRIPTS = re.compile("[\u1100-\u11ff\u3041-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
"""Characters of Hangul, Kana and Han, scripts with thousands of characters."""
_LARGE_SHARE = 0.25
_COVERAGE_OF_LARGE, _COVERAGE_OF_SMALL = 0.9995, 1.0
"""Character coverage that SentencePiece recommends for scripts with thousands of characters, and for others."""


SAMPLE_CHARACTERS = 1 << 28
"""Most characters of a sample. SentencePiece's training takes some 21 bytes of memory for each: 5.6 GB."""


@dataclass(frozen=True)
class CorpusProfile:
    """Size and script of a text's training split."""

    lines: int
    """Number of lines that are not blank."""
    characters: int
    """Number of characters of these lines."""
    large_script_share: float
    """Share of the characters that are Han, Kana or Hangul."""

    @classmethod
    def of(cls, text: Artifact) -> "CorpusProfile":
        """Read a text's training split once."""
        return cls.of_lines(training_lines(text))

    @classmethod
    def of_lines(cls, found: Iterable[str]) -> "CorpusProfile":
        """Count lines that are not blank."""
        lines = characters = large = 0
        for line in found:
            lines += 1
            characters += len(line)
            large += 0 if line.isascii() else sum(map(len, _LARGE_SCRIPTS.findall(line)))
        return cls(lines, characters, large / max(characters, 1))

    def sample_size(self, wanted: int) -> int:
        """Return the number of lines to sample: those wanted, at most `SAMPLE_CHARACTERS` at their average length."""
        held = self.lines * SAMPLE_CHARACTERS // max(self.characters, 1)
        return min(wanted, self.lines, max(held, 1))

    @property
    def character_coverage(self) -> float:
        """Share of the text's characters that are to get a piece, by its script."""
        return _COVERAGE_OF_LARGE if self.large_script_share >= _LARGE_SHARE else _COVERAGE_OF_SMALL


def training_lines(text: Artifact) -> Iterator[str]:
    """Yield the lines of a text's training split that are not blank, in the order of the text."""
    for document in read_split(text, "train"):
        yield from (line for line in document.text.splitlines() if line.strip())


def sample_lines(lines: Iterable[str], count: int, wanted: int) -> Iterator[str]:
    """Sample lines uniformly at random, in their order; all of them if there are no more than wanted.

    Each line is as likely as any other, and the choice is the same every time (Knuth's algorithm S: a line is taken
    with the probability that the rest must still yield).
    """
    draw, missing = random.Random(_SEED).random, min(wanted, count)
    for left, line in zip(range(count, 0, -1), lines, strict=True):
        if draw() * left < missing:
            missing -= 1
            yield line
