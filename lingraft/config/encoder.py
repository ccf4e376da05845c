"""Shapes in a recipe: tokenizers and the encoder."""

import math
from typing import Any, Literal, Self

import pydantic
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.config.section import Section


class TokenizerSettings(Section):
    """One SentencePiece unigram model a language."""

    vocabulary: int = Field(gt=5, description="Pieces, the five special tokens included.")
    character_coverage: float | None = Field(
        None,
        gt=0.9,
        le=1.0,
        description="Share of the text's characters that get a piece; the rest are unknown. "
        "Absent: 0.9995 of text in Han, Kana or Hangul, and all of other text.",
    )
    sample_lines: PositiveInt = Field(
        500_000,
        description="Lines of text that the tokenizer is trained on, at most; spread over all of it. Where they are "
        "long, fewer: about 2^28 characters in all, which take some 6 GB of memory.",
    )
    borrow: bool = Field(
        False,
        description="Whether a new language's tokenizer takes the source's pieces, with the source's rows, where it "
        "has none of its own: names, numbers and code stand in texts of any language.",
    )


MIN_BLOCK_TOKENS = 8
"""Tokens of the shortest block."""
Activation = Literal["gelu", "gelu_tanh", "relu"]


class PreNorm(Section):
    """Pre-norm layers with rotary positions, local attention and GeGLU; the defaults but `pooling` are ModernBERT's.

    A ModernBERT config.json without `classifier_pooling` means the first token.
    """

    global_every: PositiveInt = Field(
        3, description="Every how many layers, from the first, attention is global; it is local in the others."
    )
    local_tokens: int = Field(128, ge=2, description="Window of local attention: half of it on each side of a token.")
    global_base: PositiveFloat = Field(160_000.0, description="Base of rotary positions in layers of global attention.")
    local_base: PositiveFloat = Field(10_000.0, description="Base of rotary positions in layers of local attention.")
    attention_bias: bool = Field(False, description="Whether the projections of attention have biases.")
    feedforward_bias: bool = Field(False, description="Whether the matrices of feed-forward layers have biases.")
    norm_bias: bool = Field(False, description="Whether LayerNorms have biases.")
    head_bias: bool = Field(False, description="Whether the dense layer of heads has a bias.")
    pooling: Literal["mean", "first"] = Field(
        "mean",
        description="What a task's head for texts reads: the mean of the tokens' states, which crosses better to new "
        "languages, or the first token's state.",
    )

    @property
    def reach(self) -> int:
        """Tokens on each side that local attention sees."""
        return self.local_tokens // 2


class Family(Section):
    """Differences between architectures; the defaults are RoBERTa's.

    `family = "modern"` stands for ModernBERT's, `"bert"` for BERT's. With `pre_norm` the defaults are ModernBERT's.
    """

    position_offset: NonNegativeInt = Field(2, description="Rows of the position table before the first token's.")
    segments: NonNegativeInt = Field(0, description="Rows of the segment (token type) table; 0: there is none.")
    separators: Literal[1, 2] = Field(2, description="End tokens between the two texts of a pair; BERT has 1.")
    layer_norm_eps: PositiveFloat = Field(1e-5, description="What LayerNorms add to a variance.")
    activation: Activation = Field("gelu", description="Of layers; gelu_tanh is the approximate GELU.")
    head_activation: Activation = Field(
        "gelu", description="Of heads that have one; RoBERTa's MLM heads keep gelu, whatever layers have."
    )
    pre_norm: PreNorm | None = Field(
        None, description="Layers of ModernBERT's kind; no position table. Absent: post-norm ones."
    )

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.pre_norm and (self.segments or self.position_offset):
            raise ValueError(
                f"segments is {self.segments} and position_offset {self.position_offset}, but an encoder with pre_norm "
                "has tables of neither: leave both out"
            )
        return self

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_a_name(cls, given: Any) -> Any:
        if not isinstance(given, str):
            is_modern = isinstance(given, dict) and given.get("pre_norm") is not None
            return _FAMILIES["modern"] | given if is_modern else given
        if given not in _FAMILIES:
            raise ValueError(f"must be one of {', '.join(_FAMILIES)}, or a section with the settings of another")
        return _FAMILIES[given]

    @property
    def marks_second_text(self) -> bool:
        """Whether the second text of a pair stands in a segment of its own: BERT's does, RoBERTa's does not."""
        return self.segments > 1 and self.separators == 1


_FAMILIES: dict[str, dict[str, Any]] = {
    "roberta": {},
    "bert": {"position_offset": 0, "segments": 2, "separators": 1, "layer_norm_eps": 1e-12},
    "modern": {"position_offset": 0, "separators": 1, "pre_norm": {}},
}


class EncoderShape(Section):
    """Transformer encoder with MLM heads at any layers; RoBERTa's (paper section 3), or another family's."""

    width: PositiveInt = Field(description="Hidden size, D.")
    layers: PositiveInt = Field(description="Transformer layers of the primary, L.")
    attention_heads: PositiveInt = Field(description="Attention heads of a layer; they divide the width.")
    mlm_heads: tuple[int, ...] = Field(
        description="Layers that carry an MLM head. The last layer must; each other one is a mini-model's depth. "
        "Empty for an encoder that was imported without a head, whose mini-models `lingraft mini` builds."
    )
    block_tokens: int = Field(ge=MIN_BLOCK_TOKENS, description="Tokens of a block, T; also the longest input.")
    feedforward: PositiveInt | None = Field(
        None,
        description="Width of the feed-forward layer. Absent: 4 x width, or, where it is gated, 8/3 x width, which has "
        "as many weights, rounded up to a multiple of 16.",
    )
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Share of activations that training sets to 0.")
    family: Family = Field(Family(), description='`"modern"`, `"bert"`, or a section. Absent: RoBERTa\'s.')

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.width % self.attention_heads:
            raise ValueError(f"width {self.width} is not divisible by attention_heads {self.attention_heads}")
        head_width = self.width // self.attention_heads
        if self.family.pre_norm and head_width % 2:
            raise ValueError(
                f"width {self.width} over attention_heads {self.attention_heads} is {head_width}, which is odd, but "
                "rotary positions turn pairs of a head's columns"
            )
        heads = list(self.mlm_heads)
        if heads and (heads != sorted(set(heads)) or heads[-1] != self.layers or heads[0] < 1):
            raise ValueError(
                f"mlm_heads {heads} must be layers from 1 to {self.layers}, rising without repeats, "
                f"the last layer, {self.layers}, included"
            )
        return self

    @property
    def feedforward_width(self) -> int:
        """Width of the feed-forward layer, F."""
        if self.feedforward:
            return self.feedforward
        return 16 * math.ceil(self.width / 6) if self.family.pre_norm else 4 * self.width

    @property
    def pools_mean(self) -> bool:
        """Whether heads for texts read the mean of the tokens' states, rather than the first token's."""
        return self.family.pre_norm is not None and self.family.pre_norm.pooling == "mean"

    def is_of(self, primary: Self) -> bool:
        """Whether a primary of another shape can be trained as this one says.

        Dropout is training's own, blocks may be shorter than the longest input, and not every head need be trained.
        """
        chosen = {"dropout": self.dropout, "block_tokens": self.block_tokens, "mlm_heads": self.mlm_heads}
        fits = self.block_tokens <= primary.block_tokens and {*self.mlm_heads} <= {*primary.mlm_heads}
        return fits and primary.model_copy(update=chosen) == self

    def within(self, block_tokens: int) -> Self:
        """Return the shape for inputs of at most so many tokens."""
        return self.model_copy(update={"block_tokens": min(self.block_tokens, block_tokens)})

    def cut(self, layers: int, heads: tuple[int, ...]) -> Self:
        """Return the shape with other layers and heads."""
        return self.model_copy(update={"layers": layers, "mlm_heads": heads})
