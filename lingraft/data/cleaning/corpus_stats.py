"""Counts of paragraphs and characters that cleaning read, kept and dropped, by reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lingraft.tables import aligned

WHITE_SPACE, INVISIBLE, NORMALISED = "white space", "invisible characters", "Unicode normalisation"
"""Reasons for dropping characters of a paragraph that is kept; normalisation may also add some."""


@dataclass
class CleaningCounts:
    """Numbers of items kept and dropped."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Number of items kept or dropped."""
        return self.kept + self.dropped.total()

    def drop(self, reason: str, count: int) -> None:
        """Count items that were dropped."""
        if count:
            self.dropped[reason] += count

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
        self.paragraphs.kept += 1
        self.characters.kept += len(paragraph)

    def details(self) -> dict[str, Any]:
        """Return the counts as a manifest records them."""
        return {"paragraphs": self.paragraphs.details(), "characters": self.characters.details()}


def format_table(details: Mapping[str, Any]) -> str:
    """Format the details of `CorpusStats` as a plain-text table, a line for each reason, most characters first."""
    paragraphs, characters = details["paragraphs"], details["characters"]
    reasons = sorted(characters["dropped"], key=lambda reason: -characters["dropped"][reason])
    counts = [("read", paragraphs["read"], characters["read"])]
    counts += [(reason, paragraphs["dropped"].get(reason, 0), characters["dropped"][reason]) for reason in reasons]
    counts += [("kept", paragraphs["kept"], characters["kept"])]
    rows = [("", "paragraphs", "characters", "share")]
    for name, paragraph_count, character_count in counts:
        share = character_count / max(characters["read"], 1)
        rows.append((name, f"{paragraph_count:,}", f"{character_count:,}", f"{share:.2%}"))
    return "\n".join(aligned(rows))
