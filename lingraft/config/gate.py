"""Settings of the gate that a challenger must pass to become champion (`lingraft/tracking/gate.py`)."""

from typing import ClassVar

from pydantic import Field, NonNegativeFloat

from lingraft.config.section import Name, Section

PARITY_TOLERANCE = 1e-4
"""Largest absolute difference of a logit between ONNX Runtime and PyTorch, both in float32."""


MASKED_METRIC = "masked"
ALIGNMENT_METRIC = "alignment"
"""Metrics that need no labels: masked tokens found, and counterparts in the source language found."""


class Gate(Section):
    """Scores are shares, 0 to 1; each interval is a paired bootstrap over blocks or examples."""

    metric: Name = Field(
        MASKED_METRIC,
        description="Metric that must beat the champion's: 'masked', accuracy on masked tokens; 'alignment', retrieval "
        "of counterparts in the source language; or a task by name, its zero-shot score. A first version must beat its "
        "untrained initialisation (masked), chance (alignment), or the best trivial answer (a task), for retrieval "
        "also BM25 and the source's tokenizer.",
    )
    margin: float = Field(
        0.0,
        gt=-1.0,
        lt=1.0,
        description="Least amount by which the metric on the primary must beat the champion's; below 0: by how much "
        "it may be worse.",
    )
    tolerance: NonNegativeFloat = Field(0.02, description="Most that the zero-shot score of a task may fall.")
    tolerances: dict[Name, NonNegativeFloat] = Field(
        {}, description="Most that the score of a task may fall, by its name, in place of tolerance."
    )
    confidence: ClassVar = 0.95
    """Confidence of the two-sided interval whose lower end decides."""
    resamples: ClassVar = 2000
    """Bootstrap resamples of blocks or examples."""
    seed: ClassVar = 20_221_210
    """Seed of the resamples: the same evidence gives the same verdict."""

    def tolerance_of(self, task: str) -> float:
        """Return by how much a task's score may fall."""
        return self.tolerances.get(task, self.tolerance)
