"""The search of a language's mini-model depth, in a recipe: what is searched, for what, with how much compute."""

from enum import StrEnum
from typing import Annotated, Self

import pydantic
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from lingraft.config.initialisation import Initialisation
from lingraft.config.section import Language, Section, Share

SEARCH_STORAGE = "LINGRAFT_SEARCH_STORAGE"
"""Environment variable: the Optuna storage of searches, whose URL may have a password in it."""
_WITHOUT_EFFECT = {"language", "workers", "trials", "lost_after_s", "distances"}
"""Settings that change no trial; a search goes on under other ones."""
_ROUNDING = 1e-9


class Goal(StrEnum):
    """Criterion for the best trial of a search."""

    SCORE = "score"
    """The best score within the budget."""
    COMPUTE = "compute"
    """The least compute to a target score."""
    PARETO = "pareto"
    """Both: no other trial has a better score for as little compute."""


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
        description="score: the best score within the budget; compute: the least compute to a target score; pareto: "
        "both, of which the cheapest point is chosen that has target_share of the best score.",
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
    budget_shares: tuple[Annotated[float, Field(gt=0.0, le=1.0)], ...] = Field(
        (), description="Lengths of a trial, as shares of the budget, searched too: the learning rate ends at 0 there."
    )
    trials: PositiveInt | None = Field(
        None,
        description="Trials in all: one at each depth, the rest where Optuna expects most. Every combination if "
        "absent, which ranges do not allow.",
    )
    target_score: Share | None = Field(None, description="Goal compute: the score to reach, on dev.")
    target_share: Share = Field(
        0.95, description="Goal compute without target_score: share of the score with which the reference ends."
    )
    reference_depth: PositiveInt | None = Field(
        None, description="Depth of the reference, which is tried first and to its end; the deepest if absent."
    )
    looks: int = Field(8, ge=2, description="Looks at the score of a whole trial, equally far apart in FLOPs.")
    grace_share: Share = Field(
        0.3, description="Share of the budget before which no trial is stopped: many curves begin with a plateau."
    )
    workers: PositiveInt = Field(1, description="Processes of the pipeline that try depths at the same time.")
    lost_after_s: PositiveFloat = Field(
        120.0, description="Seconds without a sign of life from a worker after which its trial is taken up by another."
    )
    distances: dict[Language, NonNegativeFloat] = Field(
        {}, description="How far other languages are, in place of the paper's table; the nearest's depths come first."
    )

    @pydantic.model_validator(mode="after")
    def _has_one_budget(self) -> Self:
        if (self.steps_at_depth is None) == (self.flop_budget is None):
            given = "neither" if self.flop_budget is None else "both"
            raise ValueError(f"steps_at_depth or flop_budget says what a trial may cost; {given} is given")
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_searched(self) -> Self:
        for name in ("depths", "initialisations", "budget_shares"):
            if len(set(given := getattr(self, name))) < len(given):
                raise ValueError(f"{name} [{', '.join(map(str, given))}] must all be different")
        if self.mask_rate and self.mask_rate.high >= 1:
            raise ValueError(f"mask_rate.high {self.mask_rate.high} must be below 1")
        if (self.learning_rate or self.mask_rate) and self.trials is None:
            raise ValueError("trials must say how many, since a range has no end of values")
        if uneven := [
            share for share in self.budget_shares if abs(share * self.looks - round(share * self.looks)) > _ROUNDING
        ]:
            raise ValueError(f"budget_shares {uneven} must end at a look, a multiple of 1/{self.looks} (looks)")
        return self

    @pydantic.model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if self.goal is not Goal.COMPUTE and (self.target_score or self.reference_depth):
            raise ValueError(f"target_score and reference_depth are of goal 'compute'; goal is {str(self.goal)!r}")
        if self.target_score and self.reference_depth:
            raise ValueError("target_score needs no reference_depth: give one of them")
        return self

    @property
    def decisive(self) -> str:
        """All that decides what a trial finds, as JSON."""
        return self.model_dump_json(exclude=_WITHOUT_EFFECT)
