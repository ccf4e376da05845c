"""Quality of the alignment of two languages' pieces, and its resource. Needs no PyTorch."""

from dataclasses import dataclass
from enum import StrEnum


class AlignmentResource(StrEnum):
    """Resource that shows which pieces correspond, the best first."""

    PARALLEL = "parallel text"
    MINED = "mined pairs"
    DICTIONARY = "dictionary"
    TEXT = "text alone"


@dataclass(frozen=True)
class AlignmentQuality:
    """Record of an alignment in a manifest: its resource, and how far it can be trusted."""

    resource: AlignmentResource
    start: str
    """Pairs of pieces that it started from."""
    known_pairs: int
    succeeded: bool
    """Whether rows come from neighbours, or no vectors were compared; else they come from the source's pieces for the
    same text, but for those that pairs translate."""
    translated: int
    """Rows that are means of translations."""
    mapped: int
    """Rows that are means of neighbours in the common space."""
    copied_of_shared: int
    """Shared pieces whose row is the source's, and not a mean, because the alignment agrees or knows nothing."""
    shared: int
    agreement: float | None = None
    """Agreement of two alignments; this and both similarities are None where no vectors were compared."""
    similarity: float | None = None
    chance_similarity: float | None = None
    added_loss: float | None = None
    """Nats that rows from neighbours add to the masked loss of fitted ones before any update; None: not measured."""
    translations_added_loss: float | None = None
    """Nats that rows from translations alone add; None: not measured, or none were given."""

    @property
    def summary(self) -> str:
        """One line for people."""
        rest = f"{self.translated:,} from translations, {self.copied_of_shared:,} of {self.shared:,} shared ones copied"
        if self.agreement is None:
            return f"from {self.resource} ({self.known_pairs:,} pairs): rows {rest}, others from the source's pieces"
        losses = {"masked loss": self.added_loss, "of translations alone": self.translations_added_loss}
        parts = [f", {name} {added:+.2f}" for name, added in losses.items() if added is not None]
        loss = f"{''.join(parts)} beside fitted rows" if parts else ""
        of = f"from {self.resource} ({self.known_pairs:,} {self.start}, agreement {self.agreement:.2f}{loss})"
        if self.succeeded:
            return f"succeeded, {of}: {self.mapped:,} rows from neighbours, {rest}"
        return f"failed, {of}: rows from the source's pieces, but for {rest}"

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers by name, for tracking."""
        agreement = {} if self.agreement is None else {"alignment_agreement": self.agreement}
        return agreement | {"alignment_succeeded": float(self.succeeded)}
