"""Training in a recipe: the stages, and the paper's comparison."""

from typing import Any, Literal, Self

import pydantic
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.config.initialisation import Initialisation
from lingraft.config.section import Name, Section, Share
from lingraft.config.systems import System

Pooling = Literal["mean", "first", "last"]


class Pace(Section):
    """Settings of the learning curve and of checkpoints."""

    log_every_steps: PositiveInt = Field(20, description="Updates between two points of the learning curve.")
    keep_every_s: PositiveFloat = Field(600.0, description="Seconds between two checkpoints to go on from.")


def blocks_per_process(batch_blocks: int, at_once: int | None, processes: int) -> int | None:
    """Blocks of a batch for each process; None where they cannot be divided, in micro-batches if any are wanted."""
    own, rest = divmod(batch_blocks, processes)
    return None if rest or own % (at_once or 1) else own


class Training(Pace):
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


class MiniBuilding(Training):
    """Step 1b: fresh layers between the bottom of a primary and its MLM head, trained in the source language."""

    fresh_layers: PositiveInt = Field(2, description="Layers that are put in; everything else stays as it is.")


class SentencePairs(Section):
    """Learning by the pairs of [alignment] parallel: vectors of translations approach the source's vectors of the
    sentences, by their mean squared error (Reimers and Gurevych 2020, with nothing trained but embeddings). An update
    changes the rows of its pieces alone, without weight decay. There is no dropout.
    """

    layers: Literal["bottom", "all"] = Field(
        "bottom", description="Vectors are taken above the bottom layers that are adapted over, or above all layers."
    )
    pooling: Pooling = Field("mean", description="Pooling of hidden states into a vector: the task's, for a search.")
    prefixes: tuple[str, ...] = Field(
        (),
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
        description="overlap: rows of pieces that the source vocabulary also has are copied (footnote 1); aligned: "
        "rows start as means of the source's rows that mean the same, by [alignment] or by text alone.",
    )
    checkpoint_every_steps: NonNegativeInt = Field(
        0, description="Updates between embeddings that are kept along the way, for learning curves; 0 keeps the last."
    )
    early_checkpoints: tuple[PositiveInt, ...] = Field((), description="Further updates after which they are kept.")
    pairs: SentencePairs | None = Field(
        None,
        description="Learn by sentence pairs in place of masked tokens, so that the output bias stays as initialised; "
        "absent: by masked tokens.",
    )

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """Updates after which embeddings are kept: 0 (as initialised) and the last included; none without a curve."""
        if not (self.checkpoint_every_steps or self.early_checkpoints):
            return ()
        last = self.steps
        regular = range(0, last, self.checkpoint_every_steps or last)
        return tuple(sorted({*regular, *(step for step in self.early_checkpoints if step < last), last}))


class Paper(Section):
    """The paper's comparison: systems x languages x tasks x seeds, with learning curves (sections 4 and 5)."""

    systems: tuple[System, ...] = Field(tuple(System), description="Systems that are compared.")
    depths: tuple[PositiveInt, ...] = Field((), description="Further MINIJOINT depths, as in table 4; each has a head.")
    pretraining_seeds: tuple[int, ...] = Field(
        (1,), description="Seeds of pretraining; every primary is pretrained once with each."
    )
    checkpoint_every_steps: dict[System, PositiveInt] = Field(
        {}, description="Updates between checkpoints by system, in place of adaptation.checkpoint_every_steps."
    )
    starts: dict[Name, dict[Literal["tokenizer", "adaptation", "alignment"], dict[str, Any]]] = Field(
        {},
        description="Starts that are compared, by name: what each changes in the recipe's sections, such as "
        "{ overlap = { adaptation = { initialisation = 'overlap' } } }. Empty: the recipe's own is the only one.",
    )
    without_curves: tuple[str, ...] = Field(
        (), description="Tasks that are evaluated before and after adaptation only; 'masked' and 'translations', too."
    )

    @pydantic.model_validator(mode="after")
    def _differ(self) -> Self:
        for name in ("systems", "depths", "pretraining_seeds"):
            given = getattr(self, name)
            if len(set(given)) < len(given) or (not given and name != "depths"):
                shown = ", ".join(map(str, given))
                raise ValueError(f"{name} [{shown}] must be one or more, all different")
        return self
