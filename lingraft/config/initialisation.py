"""Kinds of initialisation that a recipe chooses from."""

from enum import StrEnum


class Initialisation(StrEnum):
    """Start of the rows of a language's pieces; special pieces are copied by role in every case."""

    OVERLAP = "overlap"
    """Rows of pieces that the source has too are copied, the rest are drawn from N(0, 0.02) (paper, footnote 1)."""
    ALIGNED = "aligned"
    """Rows are weighted means of the source's rows that mean the same, found by parallel text, a dictionary or text."""

    @property
    def needs_text(self) -> bool:
        """Whether rows follow from text, and not from the primary, the tokenizer and a seed alone."""
        return self is Initialisation.ALIGNED
