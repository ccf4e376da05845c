"""Compute by the paper's formulas (appendix A.1): floating-point operations, not what hardware counters see.

The paper has no pre-norm layers. Theirs follow its way of counting: matrix products, at two operations a weight.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingraft.config.systems import Step, TrainedPart
from lingraft.config.training import Adaptation
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.config.encoder import EncoderShape
    from lingraft.config.recipe import Recipe
    from lingraft.config.tasks import Finetuning
    from lingraft.config.training import Training

V100_FLOPS_PER_S = 30e12
"""FLOPs a second that the paper takes a V100 to reach in training (appendix A.1)."""
LOCAL_BLOCKS = 3
"""Blocks of keys, each as long as local attention reaches, that a token meets: its own and their neighbours."""


@dataclass(frozen=True)
class UpdateShape:
    """Shape of one update: what the formulas need."""

    layers: int
    width: int
    vocabulary: int
    block_tokens: int
    batch_blocks: int
    mask_rate: float
    heads: int = 1
    """MLM heads whose losses are averaged; the paper's MINIJOINT has two, and finetuning has none."""
    gated_feedforward: int = 0
    """Width of feed-forward layers with a gate; 0: layers have plain ones of 4 x width, as the paper's."""
    global_every: int = 1
    """Every how many layers, from the first, attention is global; it is local in the others."""
    reach: int = 0
    """Tokens on each side that local attention sees."""

    @classmethod
    def of(cls, shape: "EncoderShape", **others: Any) -> "UpdateShape":
        """Return the shape of an update of an encoder; `others` are the fields that it does not decide."""
        pre_norm, size = shape.family.pre_norm, {"width": shape.width, "block_tokens": shape.block_tokens}
        if pre_norm is None:
            return cls(**size, **others)
        layers = {"global_every": pre_norm.global_every, "reach": pre_norm.reach}
        return cls(**size, **layers, gated_feedforward=shape.feedforward_width, **others)

    def _layer(self, number: int) -> float:
        """FLOP_layer of one sequence, by the layer's number from 0."""
        feedforward = 6 * self.width * self.gated_feedforward if self.gated_feedforward else 16 * self.width**2
        is_local = number % self.global_every
        keys = min(self.block_tokens, LOCAL_BLOCKS * self.reach) if is_local else self.block_tokens
        return self.block_tokens * (8 * self.width**2 + feedforward + 4 * self.width * keys)

    def _pass(self, first: int = 0) -> float:
        """One sequence's way through the layers from `first` to the last."""
        return sum(map(self._layer, range(first, self.layers)))

    @property
    def _projection(self) -> float:
        """FLOP_outproj of one sequence."""
        return 2 * self.block_tokens * self.width * self.vocabulary

    @property
    def _head(self) -> float:
        """FLOP_lm of one sequence: only masked tokens pass through a head."""
        return self.heads * self.mask_rate * (2 * self.block_tokens * self.width**2 + self._projection)

    def pretraining_flops(self) -> float:
        """One update of all parameters (equation A1)."""
        return 3 * self.batch_blocks * (self._pass() + self._head)

    def adaptation_flops(self) -> float:
        """One update of the embeddings over a frozen body (equation A3).

        The equation counts attention's backward pass like that of frozen matrices, once the forward pass; it takes
        twice that, trained or not: 21% more in all for 12 modern layers of 256, 8,000 pieces and 2,048 tokens.
        """
        return self.batch_blocks * (2 * self._pass() + 2 * self._head + self.mask_rate * self._projection)

    def forward_flops(self) -> float:
        """One update of a task's head over a frozen body, which gets no gradient: one pass of layers."""
        return self.batch_blocks * self._pass()

    def graft_flops(self, trained_layers: int) -> float:
        """One update of the top layers alone, all else frozen: step 1b (equation A4)."""
        if not 1 <= trained_layers <= self.layers:
            raise LingraftError(
                f"trained_layers {trained_layers} must be from 1 to the {self.layers} layers of the model."
            )
        lowest = self.layers - trained_layers  # nothing below it needs its gradient
        layers = self._pass() + 2 * self._pass(lowest) - self._layer(lowest)
        return self.batch_blocks * (layers + 2 * self._head)


def flops_per_update(step: Step, work: UpdateShape) -> float:
    """One update of a step, by the equation that what it trains asks for.

    The paper has none for finetuning; without MLM heads, A1 is three passes through the layers, of which a task's head
    needs the first.
    """
    match step.trained:
        case TrainedPart.EMBEDDINGS:
            return work.adaptation_flops()
        case TrainedPart.FRESH_LAYERS:
            return work.graft_flops(step.fresh_layers)
        case TrainedPart.HEAD:
            return work.forward_flops()
        case TrainedPart.EVERYTHING | TrainedPart.BODY:
            return work.pretraining_flops()


def mlm_update_shape(recipe: "Recipe", step: Step, settings: "Training", vocabulary: int) -> UpdateShape:
    """Shape of an update of masked language modelling."""
    return UpdateShape.of(
        recipe.encoder,
        layers=step.layers,
        vocabulary=vocabulary,
        batch_blocks=settings.batch_blocks,
        mask_rate=settings.mask_rate,
        heads=len(step.heads),
    )


def finetuning_update_shape(recipe: "Recipe", step: Step, settings: "Finetuning") -> UpdateShape:
    """Shape of an update of a task's finetuning, every example as long as a block; no MLM head is passed."""
    batch = settings.batch_examples
    return UpdateShape.of(recipe.encoder, layers=step.layers, vocabulary=0, batch_blocks=batch, mask_rate=0.0, heads=0)


def step_flops(recipe: "Recipe", step: Step, settings: "Training", vocabulary: int) -> float:
    """FLOPs of such an update, by the paper's formulas.

    An update of sentence pairs counts as three passes of its tokens, in sentences as long as a block: one for the
    source's vectors, and two for the gradient of the embeddings.
    """
    pairs = settings.pairs if isinstance(settings, Adaptation) else None
    if pairs is None:
        return flops_per_update(step, mlm_update_shape(recipe, step, settings, vocabulary))
    through = recipe.layers_through(step)
    shape = UpdateShape.of(recipe.encoder, layers=through, vocabulary=0, batch_blocks=1, mask_rate=0.0, heads=0)
    return shape.pretraining_flops() * pairs.batch_tokens / recipe.encoder.block_tokens
