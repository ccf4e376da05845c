"""Progressive adaptation in a recipe: over which depths, and what says when the next one follows."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field, PositiveFloat, PositiveInt

from lingraft.config.section import Section, Share
from lingraft.errors import RecipeError

_ROUNDING = 1e-6
_STEP_ROUNDING = 1e-6
"""Rounding error, in steps, of a switch that a share of the steps places."""


class _RisingDepths(Section):
    depths: tuple[PositiveInt, ...] = Field(
        description="Depths of the mini-models in their order, rising; the last is adaptation.depth. All together take "
        "the FLOPs of adaptation.steps updates over that depth, so that shallower ones make more updates of them. "
        "One schedule of learning rates goes over all of them, by FLOPs."
    )

    @pydantic.model_validator(mode="after")
    def _rise(self) -> Self:
        if not self.depths or any(deeper <= before for before, deeper in pairwise(self.depths)):
            raise ValueError(f"depths {list(self.depths)} must be one or more, each deeper than the one before")
        return self


class FixedSwitch(_RisingDepths):
    """The next depth follows when a depth has taken its share of the FLOPs."""

    kind: Literal["fixed"] = Field(description="Says that shares decide when the next depth follows.")
    shares: tuple[PositiveFloat, ...] = Field(
        (), description="Share of the FLOPs that each depth takes, together 1; absent: the same for all."
    )

    @pydantic.model_validator(mode="after")
    def _share_everything(self) -> Self:
        if self.shares and (len(self.shares) != len(self.depths) or abs(sum(self.shares) - 1) > _ROUNDING):
            raise ValueError(
                f"shares {list(self.shares)} must be {len(self.depths)}, one a depth, that add up to 1; "
                f"they add up to {sum(self.shares):g}"
            )
        return self

    def ends(self) -> Sequence[float | None]:
        """Share of all FLOPs after which each depth ends; None: at the end of training."""
        shares = self.shares or [1 / len(self.depths)] * len(self.depths)
        return [*accumulate(shares[:-1]), None]

    def updates(self, steps: int, flops: Sequence[float]) -> list[int]:
        """Updates at each depth.

        `steps` count updates over the deepest; `flops` are those of one update at each depth.

        Raises:
            RecipeError: a depth gets none.
        """
        counts = []
        place = 0.0
        for end, each in zip(self.ends(), flops, strict=True):
            stride = each / flops[-1]
            counts.append(steps_until(steps if end is None else end * steps, place, stride))
            place += counts[-1] * stride
        if 0 in counts:
            raise RecipeError(
                f"adaptation.progressive gives depths {list(self.depths)} {counts} updates of the FLOPs of {steps} "
                f"over {self.depths[-1]}. Each needs 1 or more: raise adaptation.steps, change the shares, or leave "
                "depths out."
            )
        return counts


class DevLossSwitch(_RisingDepths):
    """The next depth follows when the dev loss improves too little for what it costs.

    The dev loss is the primary's, with the embeddings learned so far swapped in, on the first judged_blocks dev blocks.
    Over each window of looks its improvement is divided by the FLOPs of the updates between. The next depth follows
    where that is at most `threshold` times the best of the windows at this depth, or where nothing was improved.
    """

    kind: Literal["dev_loss"] = Field(description="Says that the dev loss decides when the next depth follows.")
    look_every_steps: PositiveInt = Field(
        description="Updates between two looks at the dev loss. A look is a forward pass of the whole primary, which "
        "FLOPs leave out, as they do all judging."
    )
    window_looks: PositiveInt = Field(4, description="Looks from the beginning of a window to its end.")
    threshold: Share = Field(0.3, description="Share of the best improvement per FLOP at which a depth ends.")

    def ends(self) -> Sequence[float | None]:
        """The end of training for every depth: when the dev loss ends one is not known beforehand."""
        return [None] * len(self.depths)


Progressive = Annotated[FixedSwitch | DevLossSwitch, Field(discriminator="kind")]


def steps_until(end: float, begun: float, each: float) -> int:
    """Steps of a size that there are from one place to another, none of them beyond it.

    A distance of so many steps is so many, however their sum was rounded.
    """
    return max(0, int((end - begun) / each + _STEP_ROUNDING))
