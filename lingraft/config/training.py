"""Training in a recipe: the stages, and the paper's comparison."""

import operator
from typing import Literal, Self

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.config.initialisation import Initialisation
from lingraft.config.progressive import Progressive
from lingraft.config.section import Section, Share, is_none
from lingraft.config.systems import System

Pooling = Literal["mean", "first", "last"]


class OptimizerSettings(Section):
    """Settings of the optimizer, of checkpoints, and of what ends a training."""

    weight_decay: NonNegativeFloat = Field(
        0.01, description="Decay of matrices, decoupled; biases and norms have none."
    )
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


def blocks_per_process(batch_blocks: int, at_once: int | None, processes: int) -> int | None:
    """Blocks of a batch for each process; None where they cannot be divided, in micro-batches if any are wanted."""
    own, rest = divmod(batch_blocks, processes)
    return None if rest or own % (at_once or 1) else own


class Training(OptimizerSettings):
    """One run of the training loop."""

    steps: PositiveInt = Field(description="Optimizer updates.")
    batch_blocks: PositiveInt = Field(description="Blocks of block_tokens tokens in one update.")
    micro_batch_blocks: PositiveInt | None = Field(
        None, description="Blocks computed at once, where an update's do not fit into memory; all if absent."
    )
    learning_rate: PositiveFloat = Field(description="Peak of the schedule: linear warm-up, then linear decay to 0.")
    warmup_steps: NonNegativeInt = Field(0, description="Updates over which the learning rate rises to its peak.")
    mask_rate: Share = Field(0.15, description="Share of tokens that are predicted; of these 80/10/10 as in BERT.")
    seed: int = Field(1, description="Seed of initial weights, order of blocks and masks.")
    judged_blocks: PositiveInt = Field(1024, description="Dev blocks that a look at the dev score reads, the first.")

    @pydantic.model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be fewer than steps {self.steps}")
        return self

    @pydantic.model_validator(mode="after")
    def _divides_a_batch(self) -> Self:
        if self.batch_blocks % self.blocks_at_once:
            raise ValueError(
                f"micro_batch_blocks {self.micro_batch_blocks} must divide batch_blocks {self.batch_blocks}"
            )
        return self

    @property
    def blocks_at_once(self) -> int:
        """Blocks of one forward and backward pass."""
        return self.micro_batch_blocks or self.batch_blocks


class Windows(Section):
    """Windows of a block within which pretraining begins."""

    tokens: PositiveInt = Field(description="Tokens of a window; they divide encoder.block_tokens.")
    steps: PositiveInt = Field(description="Updates within windows, out of pretraining.steps.")


class Pretraining(Training):
    """Step 1: the primary with its MLM heads, from nothing, in the source language."""

    # Left out where it is the default, so that recipes that do not name it keep their digest.
    positions: Literal["random", "sinusoidal"] = Field(
        "random",
        exclude_if=lambda positions: positions == "random",
        description="Initial position embeddings: RoBERTa's random ones, or sinusoids, with which a small "
        "post-norm primary leaves the first plateau sooner.",
    )
    embeddings: Literal["random", "static-vectors"] = Field(
        "random",
        exclude_if=lambda embeddings: embeddings == "random",
        description="Initial token embeddings: random rows, or static vectors counted in the same text "
        "(lingraft vectors), with which a small primary learns in fewer updates what words mean.",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw",
        exclude_if=lambda optimizer: optimizer == "adamw",
        description="What updates the matrices of layers and heads: AdamW, or Muon, with which a small primary needs "
        "fewer updates; AdamW updates embeddings, biases and norms in either case.",
    )
    windows: Windows | None = Field(
        None,
        exclude_if=is_none,
        description="Have attention stay within windows of a block for the first updates, by which small primaries "
        "find their neighbours sooner; absent: whole blocks throughout.",
    )
    forget_every: PositiveInt | None = Field(
        None,
        exclude_if=is_none,
        description="Updates after which the token table, rows of special pieces included, and the output bias are "
        "drawn anew, again and again, as a language brings new rows, too (active forgetting, Chen et al. 2023; at "
        "the demo's size it loses). At least as many updates follow the last time; absent: never.",
    )

    @pydantic.model_validator(mode="after")
    def _ends_on_whole_blocks(self) -> Self:
        if self.windows and self.windows.steps >= self.steps:
            raise ValueError(f"windows.steps {self.windows.steps} must be fewer than steps {self.steps}")
        return self

    @pydantic.model_validator(mode="after")
    def _relearns_what_it_forgets(self) -> Self:
        if self.forget_every and 2 * self.forget_every > self.steps:
            raise ValueError(
                f"forget_every {self.forget_every} must be at most half of steps {self.steps}, since as many updates "
                "follow the last forgetting: lower it, or leave it out"
            )
        if self.forget_every and self.judge_every_steps:
            raise ValueError(
                f"judge_every_steps {self.judge_every_steps} would keep the weights before one of the times when "
                f"forget_every {self.forget_every} lowers the dev score: leave one of them out"
            )
        return self

    def forgets_after(self, steps: int) -> range:
        """Return the updates after which a pretraining of so many updates draws table and output bias anew."""
        every = self.forget_every
        return range(every, steps - every + 1, every) if every else range(0)


class MiniBuilding(Training):
    """Step 1b: fresh layers between the bottom of a primary and its MLM head, trained in the source language."""

    fresh_layers: PositiveInt = Field(2, description="Layers that are put in; everything else stays as it is.")


class SentencePairs(Section):
    """Learning by the pairs of [alignment] parallel: vectors of translations approach the source's vectors of the
    sentences, by their mean squared error (Reimers and Gurevych 2020, with nothing trained but embeddings). An update
    changes the rows of its pieces alone, without weight_decay. There is no dropout.
    """

    layers: Literal["bottom", "all"] = Field(
        "bottom", description="Vectors are taken above the bottom layers that are adapted over, or above all layers."
    )
    pooling: Pooling = Field("mean", description="Pooling of hidden states into a vector: the task's, for a search.")
    prefixes: tuple[str, ...] = Field(
        (),
        exclude_if=operator.not_,
        description="Texts before both sentences of a pair, by turns from pair to pair, such as a task's query_prefix "
        "and passage_prefix; none if absent. A task's dense layers and normalisation are left out: they turn equal "
        "pooled vectors into equal ones, and were not made for the states of bottom layers.",
    )
    batch_tokens: PositiveInt = Field(
        2048,
        description="Tokens of translations in one update, at most: as many pairs of like length as they hold.",
    )


class Adaptation(Training):
    """Learning one language's embeddings over a frozen body (paper section 2, step 2)."""

    depth: PositiveInt = Field(
        description="Bottom layers that the mini-model shares with the primary, which must have an MLM head there "
        "(not so for MINIPOST, whose mini-model is built by [mini])."
    )
    initialisation: Initialisation = Field(
        Initialisation.OVERLAP,
        description="overlap: rows of pieces that the source vocabulary also has are copied (footnote 1); fitted: the "
        "rest, too, start near the source's rows of pieces of their kind; aligned: rows start as means of the source's "
        "rows that mean the same, by [alignment] or by text alone; random: only special pieces are copied.",
    )
    checkpoint_every_steps: NonNegativeInt = Field(
        0, description="Updates between embeddings that are kept along the way, for learning curves; 0 keeps the last."
    )
    early_checkpoints: tuple[PositiveInt, ...] = Field((), description="Further updates after which they are kept.")
    progressive: Progressive | None = Field(
        None, description="Begin on shallower mini-models, and go on on deeper ones; absent: one depth throughout."
    )

    pairs: SentencePairs | None = Field(
        None,
        exclude_if=is_none,
        description="Learn by sentence pairs in place of masked tokens, so that the output bias stays as initialised; "
        "absent: by masked tokens.",
    )

    @pydantic.model_validator(mode="after")
    def _ends_at_its_depth(self) -> Self:
        if self.progressive and self.progressive.depths[-1] != self.depth:
            raise ValueError(
                f"progressive.depths {list(self.progressive.depths)} must end with depth {self.depth}, whose updates "
                "`steps` counts"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _judges_what_is_learned(self) -> Self:
        if self.pairs is None:
            return self
        by_masked = ["judge_every_steps"] if self.judge_every_steps else []
        if self.progressive and self.progressive.kind == "dev_loss":
            by_masked.append("progressive.kind 'dev_loss'")
        if by_masked:
            raise ValueError(
                f"{' and '.join(by_masked)} would judge by masked tokens, which adaptation.pairs does not learn: leave "
                "one of them out"
            )
        return self

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """Updates after which embeddings are kept: 0 (as initialised) and the last included; none without a curve."""
        return self.checkpoints_until(self.steps)

    def checkpoints_until(self, last: int) -> tuple[int, ...]:
        """Return the updates after which embeddings are kept in a training of another length."""
        if not (self.checkpoint_every_steps or self.early_checkpoints):
            return ()
        regular = range(0, last, self.checkpoint_every_steps or last)
        return tuple(sorted({*regular, *(step for step in self.early_checkpoints if step < last), last}))


class Paper(Section):
    """The paper's comparison: systems x languages x tasks x seeds, with learning curves (sections 4 and 5)."""

    systems: tuple[System, ...] = Field(tuple(System), description="Systems that are compared.")
    depths: tuple[PositiveInt, ...] = Field((), description="Further MINIJOINT depths, as in table 4; each has a head.")
    pretraining_seeds: tuple[int, ...] = Field(
        (1,), description="Seeds of pretraining; every primary is pretrained once with each."
    )
    further_seeds: dict[System, tuple[int, ...]] = Field(
        {}, description="Systems that are pretrained with these seeds too, and then run at adaptation.depth alone."
    )
    further_tasks: tuple[str, ...] | None = Field(
        None,
        exclude_if=is_none,
        description="Tasks that systems of further_seeds are judged on, besides masked tokens; all if absent.",
    )
    checkpoint_every_steps: dict[System, PositiveInt] = Field(
        {}, description="Updates between checkpoints by system, in place of adaptation.checkpoint_every_steps."
    )

    @pydantic.model_validator(mode="after")
    def _differ(self) -> Self:
        for name in ("systems", "depths", "pretraining_seeds"):
            given = getattr(self, name)
            if len(set(given)) < len(given) or (not given and name != "depths"):
                shown = ", ".join(map(str, given))
                raise ValueError(f"{name} [{shown}] must be one or more, all different")
        return self

    @pydantic.model_validator(mode="after")
    def _seeds_are_further(self) -> Self:
        for system, seeds in self.further_seeds.items():
            every = [*self.pretraining_seeds, *seeds]
            if system not in self.systems or len({*every}) < len(every):
                raise ValueError(
                    f"further_seeds {system} {list(seeds)} must be all different, none of pretraining_seeds "
                    f"{list(self.pretraining_seeds)}, and of one of the systems {[*map(str, self.systems)]}"
                )
        return self
