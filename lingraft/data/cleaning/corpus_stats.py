"""What cleaning read, kept and dropped, by reason: in paragraphs and in characters."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WHITE_SPACE, INVISIBLE, NORMALISED = "white space", "invisible characters", "Unicode normalisation"
"""Reasons for which characters go and their paragraph stays; normalisation may also add some."""


@dataclass
class CleaningCounts:
    """Read is kept and dropped, always."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def keep(self, count: int) -> None:
        """Count what was read and stays."""
        self.read += count
        self.kept += count

    def drop(self, reason: str, count: int) -> None:
        """Count what was read and goes."""
        if count:
            self.read += count
            self.dropped[reason] += count

    def take_back(self, reason: str, count: int) -> None:
        """Count what goes after it was kept."""
        self.kept -= count
        self.dropped[reason] += count

    def add(self, other: "CleaningCounts") -> None:
        """Count another tally's too."""
        self.read += other.read
        self.kept += other.kept
        self.dropped.update(other.dropped)

    def details(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        return {"read": self.read, "kept": self.kept, "dropped": dict(self.dropped)}


@dataclass
class CorpusStats:
    """Paragraphs and characters; line ends are not counted."""

    paragraphs: CleaningCounts = field(default_factory=CleaningCounts)
    characters: CleaningCounts = field(default_factory=CleaningCounts)

    def drop(self, reason: str, paragraph: str) -> None:
        """Count a paragraph that goes as it was read."""
        self.paragraphs.drop(reason, 1)
        self.characters.drop(reason, len(paragraph))

    def keep(self, paragraph: str) -> None:
        """Count a paragraph that stays."""
        self.paragraphs.keep(1)
        self.characters.keep(len(paragraph))

    def take_back(self, reason: str, paragraph: str) -> None:
        """Count a paragraph that goes after it was kept."""
        self.paragraphs.take_back(reason, 1)
        self.characters.take_back(reason, len(paragraph))

    def add(self, other: "CorpusStats") -> None:
        """Count another census's too."""
        self.paragraphs.add(other.paragraphs)
        self.characters.add(other.characters)

    def details(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        return {"paragraphs": self.paragraphs.details(), "characters": self.characters.details()}


def format_table(details: Mapping[str, Any]) -> str:
    """A census's details as a table in plain text: a line a reason, most characters first."""
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
