"""What all trainings have in common in a recipe: AdamW's settings, when to look, when to stop, what to keep."""

from typing import Self

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.section import Section


class Pace(Section):
    """How a training moves, and what it survives."""

    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW's decay of matrices; biases and norms have none.")
    clip_norm: PositiveFloat = Field(1.0, description="Largest gradient norm; larger ones are scaled down to it.")
    log_every_steps: PositiveInt = Field(20, description="Updates between two points of the learning curve.")
    keep_every_s: PositiveFloat = Field(600.0, description="Seconds between two checkpoints to go on from.")
    skipped_steps: NonNegativeInt = Field(
        10, description="Updates with a loss or gradient that is not finite that are left out before training stops."
    )
    judge_every_steps: NonNegativeInt = Field(
        0, description="Updates between two looks at the dev score, of which the best weights stay; 0: the last stay."
    )
    patience: NonNegativeInt = Field(
        0, description="Looks without a better dev score after which training ends; 0: it goes on to the end."
    )
    flop_budget: PositiveFloat | None = Field(
        None, description="Training ends before it would take more FLOPs than this, by the paper's formulas."
    )
    recompute: bool = Field(
        False,
        description="Compute layers again in the backward pass in place of keeping what they computed: less "
        "memory, about a third more time.",
    )

    @pydantic.model_validator(mode="after")
    def _looks_before_it_stops(self) -> Self:
        if self.patience and not self.judge_every_steps:
            raise ValueError(f"patience {self.patience} needs judge_every_steps, the updates between two looks")
        return self
