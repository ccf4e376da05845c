"""Shapes in a recipe: tokenizers and the encoder."""

from typing import Literal, Self

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


Activation = Literal["gelu", "gelu_tanh", "relu"]


class Family(Section):
    """Differences between architectures of RoBERTa's family; the defaults are RoBERTa's, which our own models have."""

    position_offset: NonNegativeInt = Field(2, description="Rows of the position table before the first token's.")
    segments: NonNegativeInt = Field(0, description="Rows of the segment (token type) table; 0: there is none.")
    separators: Literal[1, 2] = Field(2, description="End tokens between the two texts of a pair; BERT has 1.")
    layer_norm_eps: PositiveFloat = Field(1e-5, description="What LayerNorms add to a variance.")
    activation: Activation = Field("gelu", description="Of layers; gelu_tanh is the approximate GELU.")
    head_activation: Activation = Field("gelu", description="Of MLM heads; RoBERTa's keep gelu, whatever layers have.")

    @property
    def marks_second_text(self) -> bool:
        """Whether the second text of a pair stands in a segment of its own: BERT's does, RoBERTa's does not."""
        return self.segments > 1 and self.separators == 1


class EncoderShape(Section):
    """RoBERTa architecture (paper section 3) with MLM heads at any layers."""

    width: PositiveInt = Field(description="Hidden size, D.")
    layers: PositiveInt = Field(description="Transformer layers of the primary, L.")
    attention_heads: PositiveInt = Field(description="Attention heads of a layer; they divide the width.")
    mlm_heads: tuple[int, ...] = Field(
        description="Layers that carry an MLM head. The last layer must; each other one is a mini-model's depth."
    )
    block_tokens: int = Field(ge=8, description="Tokens of a block, T; also the longest input.")
    feedforward: PositiveInt | None = Field(None, description="Width of the feed-forward layer; 4 x width if absent.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Share of activations that training sets to 0.")
    family: Family = Field(Family(), description="Of an imported primary, where it is not RoBERTa's.")

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.width % self.attention_heads:
            raise ValueError(f"width {self.width} is not divisible by attention_heads {self.attention_heads}")
        heads = list(self.mlm_heads)
        if heads != sorted(set(heads)) or heads[-1:] != [self.layers] or heads[0] < 1:
            raise ValueError(
                f"mlm_heads {heads} must be layers from 1 to {self.layers}, rising without repeats, "
                f"the last layer, {self.layers}, included"
            )
        return self

    def cut(self, layers: int, heads: tuple[int, ...]) -> Self:
        """Return the shape with other layers and heads."""
        return self.model_copy(update={"layers": layers, "mlm_heads": heads})
