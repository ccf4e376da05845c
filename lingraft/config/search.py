"""The search of a language's mini-model depth, in a recipe: what is searched, for what, with how much compute."""

from enum import StrEnum
from typing import Self

import pydantic
from pydantic import Field, PositiveInt

from lingraft.config.section import Language, Section

SEARCH_STORAGE = "LINGRAFT_SEARCH_STORAGE"
"""Environment variable: the Optuna storage of searches, whose URL may have a password in it."""
_WITHOUT_EFFECT = {"language", "workers"}
"""Settings that change no trial; a search goes on under other ones."""


class Metric(StrEnum):
    """Score by which a search compares trials, on the dev split."""

    MASKED = "masked"
    """Masked tokens that the primary finds."""
    ALIGNMENT = "alignment"
    """Counterparts in the source language that the primary's hidden states find."""


class Search(Section):
    """Optuna's search of a language's mini-model depth (section 5.2)."""

    language: Language = Field(
        description="Target language that the depth is searched for; the first target if it is not one of them."
    )
    metric: Metric = Field(
        Metric.MASKED,
        description="Score of a trial, on the dev split: masked, accuracy on masked tokens; alignment, retrieval of "
        "counterparts in the source language among parallel paragraphs or shared pieces, which tells more of zero-shot "
        "transfer.",
    )
    steps_at_depth: PositiveInt = Field(
        description="A trial's budget: what so many updates over adaptation.depth layers cost, at every depth."
    )
    depths: tuple[PositiveInt, ...] = Field(
        (), description="Depths to try; every head of a MINIJOINT primary if empty. MINIPOST builds one model for each."
    )
    looks: int = Field(8, ge=2, description="Looks at the score of a whole trial, equally far apart in FLOPs.")
    eval_blocks: PositiveInt = Field(1024, description="Dev blocks that a look reads, the first.")
    workers: PositiveInt = Field(1, description="Processes of the pipeline that try depths at the same time.")

    @pydantic.model_validator(mode="after")
    def _depths_differ(self) -> Self:
        if len(set(self.depths)) < len(self.depths):
            raise ValueError(f"depths {list(self.depths)} must all be different")
        return self

    @property
    def decisive(self) -> str:
        """All that decides what a trial finds, as JSON."""
        return self.model_dump_json(exclude=_WITHOUT_EFFECT)
