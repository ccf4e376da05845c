"""Cells of the comparison: shapes x number formats x stages of training, with FLOPs by the paper's formulas."""

import itertools
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from lingraft.config.encoder import EncoderShape, Family
from lingraft.config.systems import Stage, Step, TrainedPart
from lingraft.model.flops import UpdateShape, flops_per_update

Format = Literal["fp32", "bf16"]
FORMATS: tuple[Format, ...] = ("fp32", "bf16")
FAMILIES = ("roberta", "modern")
MASK_RATE, LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 0.15, 1e-4, 0.01, 1.0
DEEP, MINI, FRESH = 12, 4, 2
"""Layers of the primary, of the mini-model, and those of the mini-model that step 1b trains."""
LABELS = ("contradiction", "entailment", "neutral")
"""Labels of the task that is finetuned."""


class Training(StrEnum):
    """Trained part of a model, with the layers it is trained over."""

    PRETRAINING = "pretraining"
    ADAPTATION = f"adaptation over {DEEP} layers"
    MINI = f"mini-model adaptation over {MINI} layers"
    STEP_1B = f"step 1b, {FRESH} fresh layers"
    FINETUNING = "finetuning of pairs"

    @property
    def peer(self) -> "Training":
        """Training of the peer in its place: it knows no mini-models, so it adapts over all layers."""
        return Training.ADAPTATION if self is Training.MINI else self

    @property
    def step(self) -> Step:
        """Step of training: what is trained, over which layers, with which heads."""
        return _STEPS[self]


_STEPS = {
    Training.PRETRAINING: Step(Stage.PRETRAIN, TrainedPart.EVERYTHING, DEEP, (DEEP,)),
    Training.ADAPTATION: Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, DEEP, (DEEP,)),
    Training.MINI: Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, MINI, (MINI,)),
    Training.STEP_1B: Step(Stage.BUILD_MINI, TrainedPart.FRESH_LAYERS, MINI, (MINI,), FRESH),
    Training.FINETUNING: Step(Stage.FINETUNE, TrainedPart.BODY, DEEP),
}
_EVERYWHERE = (Training.PRETRAINING, Training.ADAPTATION, Training.MINI)
"""Measured at every shape; the others at the shape of a task's pairs, for their memory."""


_PAIR_TOKENS = 128
_BASE = {"width": 768, "attention_heads": 12, "vocabulary": 50_000}


class Shape(NamedTuple):
    """A model and its batch."""

    name: str
    width: int
    attention_heads: int
    vocabulary: int
    tokens: int
    """Tokens of a block."""
    blocks: int
    """Blocks of an update."""
    family: str = "roberta"

    @property
    def encoder(self) -> EncoderShape:
        """Shape of the primary, with heads for all trainings."""
        return EncoderShape(
            width=self.width,
            layers=DEEP,
            attention_heads=self.attention_heads,
            mlm_heads=(MINI, DEEP),
            block_tokens=self.tokens,
            family=Family.model_validate(self.family),
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens of an update."""
        return self.tokens * self.blocks

    @property
    def is_of_pairs(self) -> bool:
        """Whether it is the base shape on blocks as long as a task's pairs."""
        return self.is_base and self.tokens == _PAIR_TOKENS

    @property
    def is_base(self) -> bool:
        """Whether it has the sizes of RoBERTa-base, whatever the family and the length of blocks."""
        return self._asdict().items() >= _BASE.items()


def shapes(tokens_per_step: int, family: str = "roberta") -> tuple[Shape, ...]:
    """The shapes compared, each with a batch of so many tokens."""
    small = {"width": 256, "attention_heads": 4, "vocabulary": 8_000}
    sizes = [("base", _BASE, _PAIR_TOKENS), ("base", _BASE, 512), ("small", small, 128)]
    if family == "modern":  # whose local attention shows in long blocks
        sizes += [("small", small, 512), ("small", small, 2048)]
    of_family = "" if family == "roberta" else f" {family}"
    return tuple(
        Shape(
            name=f"{name}{of_family}, {tokens} tokens",
            **size,
            tokens=tokens,
            blocks=max(1, tokens_per_step // tokens),
            family=family,
        )
        for name, size, tokens in sizes
    )


@dataclass(frozen=True)
class Cell:
    """One comparison."""

    shape: Shape
    format: Format
    training: Training

    @property
    def name(self) -> str:
        """Name of the cell in records and tables."""
        return f"{self.shape.name}, {self.format}, {self.training}"

    @property
    def peer(self) -> "Cell":
        """Cell of the peer."""
        return Cell(self.shape, self.format, self.training.peer)

    @property
    def flops(self) -> float:
        """FLOPs of an update, by the paper's formulas."""
        shape, step, heads = self.shape, self.training.step, len(self.training.step.heads)
        work = UpdateShape.of(
            shape.encoder,
            layers=step.layers,
            vocabulary=shape.vocabulary,
            batch_blocks=shape.blocks,
            mask_rate=MASK_RATE if heads else 0.0,
            heads=heads,
        )
        return flops_per_update(step, work)

    @property
    def flop_ratio(self) -> float:
        """Speed-up that fewer layers alone would give against the peer."""
        return self.peer.flops / self.flops

    def plain(self) -> dict[str, Any]:
        """Return the cell as JSON values."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Cell":
        """Read a cell from what `plain` gave."""
        return cls(Shape(*plain["shape"]), plain["format"], Training(plain["training"]))


def cells(tokens_per_step: int, family: str = "roberta") -> list[Cell]:
    """All comparisons of a family of encoders, those of one peer together."""
    every = itertools.starmap(Cell, itertools.product(shapes(tokens_per_step, family), FORMATS, Training))
    return [cell for cell in every if cell.training in _EVERYWHERE or cell.shape.is_of_pairs]
