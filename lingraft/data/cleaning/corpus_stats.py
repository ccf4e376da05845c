"""Counts of paragraphs and characters that cleaning read, kept and dropped, by reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WHITE_SPACE, INVISIBLE, NORMALISED = "white space", "invisible characters", "Unicode normalisation"
"""Reasons for dropping characters of a paragraph that is kept; normalisation may also add some."""


@dataclass
class CleaningCounts:
    """Numbers of items read, kept and dropped; those read are always the sum of the others."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def keep(self, count: int) -> None:
        """Count items that were read and kept."""
        self.read += count
        self.kept += count

    def drop(self, reason: str, count: int) -> None:
        """Count items that were read and dropped."""
        if count:
            self.read += count
            self.dropped[reason] += count

    def take_back(self, reason: str, count: int) -> None:
        """Count items as dropped that were counted as kept."""
        self.kept -= count
        self.dropped[reason] += count

    def add(self, other: "CleaningCounts") -> None:
        """Add the counts of another instance."""
        self.read += other.read
        self.kept += other.kept
        self.dropped.update(other.dropped)

    def details(self) -> dict[str, Any]:
        """Return the counts as a manifest records them."""
        return {"read": self.read, "kept": self.kept, "dropped": dict(self.dropped)}


@dataclass
class CorpusStats:
    """Counts of paragraphs and of characters; line ends are not counted."""

    paragraphs: CleaningCounts = field(default_factory=CleaningCounts)
    characters: CleaningCounts = field(default_factory=CleaningCounts)

    def drop(self, reason: str, paragraph: str) -> None:
        """Count a paragraph that was read and dropped."""
        self.paragraphs.drop(reason, 1)
        self.characters.drop(reason, len(paragraph))

    def keep(self, paragraph: str) -> None:
        """Count a paragraph that was read and kept."""
        self.paragraphs.keep(1)
        self.characters.keep(len(paragraph))

    def take_back(self, reason: str, paragraph: str) -> None:
        """Count a paragraph as dropped that was counted as kept."""
        self.paragraphs.take_back(reason, 1)
        self.characters.take_back(reason, len(paragraph))

    def add(self, other: "CorpusStats") -> None:
        """Add the counts of another instance."""
        self.paragraphs.add(other.paragraphs)
        self.characters.add(other.characters)

    def details(self) -> dict[str, Any]:
        """Return the counts as a manifest records them."""
        return {"paragraphs": self.paragraphs.details(), "characters": self.characters.details()}


def format_table(details: Mapping[str, Any]) -> str:
    """Format the details of `CorpusStats` as a plain-text table, a line for each reason, most characters first."""
    paragraphs, characters = details["paragraphs"], details["characters"]
    reasons = sorted(characters["dropped"], key=lambda reason: -characters["dropped"][reason])
    rows = [("read", paragraphs["read"], characters["read"])]
    rows += [(reason, paragraphs["dropped"].get(reason, 0), characters["dropped"][reason]) for reason in reasons]
    rows += [("kept", paragraphs["kept"], characters["kept"])]
    share = [f"{count / max(characters['read'], 1):9.2%}" for _, _, count in rows]
    lines = [
        f"{name:<24}{paragraph:>14,}{character:>16,}{part}"
        for (name, paragraph, character), part in zip(rows, share, strict=True)
    ]
    return "\n".join([f"{'':<24}{'paragraphs':>14}{'characters':>16}{'share':>9}", *lines])
