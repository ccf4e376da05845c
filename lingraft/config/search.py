"""The search of a language's mini-model depth, in a recipe: what is searched, for what, with how much compute."""

from enum import StrEnum
from typing import Self

import pydantic
from pydantic import Field, PositiveFloat, PositiveInt

from lingraft.config.initialisation import Initialisation
from lingraft.config.section import Language, Section, Share

SEARCH_STORAGE = "LINGRAFT_SEARCH_STORAGE"
"""Environment variable: the Optuna storage of searches, whose URL may have a password in it."""
_WITHOUT_EFFECT = {"language", "workers", "trials"}
"""Settings that change no trial; a search goes on under other ones."""


class Goal(StrEnum):
    """Criterion for the best trial of a search."""

    SCORE = "score"
    """The best score within the budget."""
    COMPUTE = "compute"
    """The least compute to a target score."""


class Metric(StrEnum):
    """Score by which a search compares trials, on the dev split."""

    MASKED = "masked"
    """Masked tokens that the primary finds."""
    ALIGNMENT = "alignment"
    """Counterparts in the source language that the primary's hidden states find."""


class Range(Section):
    """Positive numbers that are searched on a logarithmic scale."""

    low: PositiveFloat = Field(description="Smallest value that is searched.")
    high: PositiveFloat = Field(description="Largest value that is searched.")

    @pydantic.model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be less than high {self.high}")
        return self

    def nearest(self, value: float) -> float:
        """The number of the range that is nearest to one that may be outside."""
        return min(max(value, self.low), self.high)


class Search(Section):
    """Optuna's search of a language's mini-model depth (section 5.2), and on request of how it is trained."""

    language: Language = Field(
        description="Target language that the depth is searched for; the first target if it is not one of them."
    )
    goal: Goal = Field(
        Goal.SCORE,
        description="score: the best score within the budget; compute: the least compute to a target score.",
    )
    # Left out where it is the default, so that recipes that do not name it keep their digest.
    metric: Metric = Field(
        Metric.MASKED,
        exclude_if=lambda metric: metric is Metric.MASKED,
        description="Score of a trial, on the dev split: masked, accuracy on masked tokens; alignment, retrieval of "
        "counterparts in the source language among parallel paragraphs or shared pieces, which tells more of zero-shot "
        "transfer.",
    )
    steps_at_depth: PositiveInt | None = Field(
        None, description="A trial's budget: what so many updates over adaptation.depth layers cost, at every depth."
    )
    flop_budget: PositiveFloat | None = Field(None, description="A trial's budget in FLOPs; give one of the two.")
    depths: tuple[PositiveInt, ...] = Field(
        (), description="Depths to try; every head of a MINIJOINT primary if empty. MINIPOST builds one model for each."
    )
    learning_rate: Range | None = Field(
        None, description="Learning rates to search; adaptation.learning_rate if absent."
    )
    mask_rate: Range | None = Field(None, description="Mask rates below 1 to search; adaptation.mask_rate if absent.")
    initialisations: tuple[Initialisation, ...] = Field(
        (), description="Initialisations to search; adaptation.initialisation if empty."
    )
    trials: PositiveInt | None = Field(
        None,
        description="Trials in all: one at each depth, the rest where Optuna expects most. Every combination if "
        "absent, which ranges do not allow.",
    )
    target_score: Share | None = Field(None, description="Goal compute: the score to reach, on dev.")
    target_share: Share = Field(
        0.95, description="Goal compute without target_score: share of the best score that any trial has."
    )
    looks: int = Field(8, ge=2, description="Looks at the score of a whole trial, equally far apart in FLOPs.")
    grace_share: Share = Field(
        0.3, description="Share of the budget before which no trial is stopped: many curves begin with a plateau."
    )
    workers: PositiveInt = Field(1, description="Processes of the pipeline that try depths at the same time.")

    @pydantic.model_validator(mode="after")
    def _has_one_budget(self) -> Self:
        if (self.steps_at_depth is None) == (self.flop_budget is None):
            given = "neither" if self.flop_budget is None else "both"
            raise ValueError(f"steps_at_depth or flop_budget says what a trial may cost; {given} is given")
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_searched(self) -> Self:
        for name in ("depths", "initialisations"):
            if len(set(given := getattr(self, name))) < len(given):
                raise ValueError(f"{name} [{', '.join(map(str, given))}] must all be different")
        if self.mask_rate and self.mask_rate.high >= 1:
            raise ValueError(f"mask_rate.high {self.mask_rate.high} must be below 1")
        if (self.learning_rate or self.mask_rate) and self.trials is None:
            raise ValueError("trials must say how many, since a range has no end of values")
        return self

    @pydantic.model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if self.goal is not Goal.COMPUTE and self.target_score:
            raise ValueError(f"target_score is of goal 'compute'; goal is {str(self.goal)!r}")
        return self

    @property
    def decisive(self) -> str:
        """All that decides what a trial finds, as JSON."""
        return self.model_dump_json(exclude=_WITHOUT_EFFECT)
