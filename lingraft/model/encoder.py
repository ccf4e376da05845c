"""The encoder with MLM heads at any layers, of RoBERTa's family or ModernBERT's.

Legend: B batch, T tokens, D width, H attention heads, F feed-forward, V vocabulary, L layers, M masked tokens.

What belongs to the vocabulary (the token table and the output bias) stands apart from the body, because that is
what a language brings: `vocabulary` is swapped, everything else is the body and its heads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds
from lingraft.errors import DepthError
from lingraft.model.compiled import compiled
from lingraft.model.heads import mlm_head_layers
from lingraft.model.pre_norm import ACTIVATIONS, Attention, PreNormLayer, layer_norm

INITIAL_STD = 0.02


class Vocabulary(nn.Module):
    """A language's token table (V, D), tied to the output projection, its output bias (V) and special ids.

    Pieces behind its own V may be borrowed: their rows are the source's. They are neither trained nor saved.
    """

    def __init__(self, size: int, width: int, special: SpecialIds = DEFAULT_SPECIAL_IDS) -> None:
        super().__init__()
        self.special = special
        self.table_VD = nn.Parameter(torch.empty(size, width).normal_(std=INITIAL_STD))
        self.bias_V = nn.Parameter(torch.zeros(size))
        self.borrowed: BorrowedRows | None = None

    def __len__(self) -> int:
        return len(self.table_VD) + (len(self.borrowed.ids_B) if self.borrowed else 0)

    def lookup(self, tokens_BT: Tensor, sparse: bool = False) -> Tensor:
        """Return the rows (B, T, D) of token ids; `sparse` is the form of the gradient of the table."""
        if self.borrowed is None:
            return F.embedding(tokens_BT, self.table_VD, sparse=sparse)
        behind_BT = tokens_BT - len(self.table_VD)
        own_BT = behind_BT < 0
        own_BTD = F.embedding(tokens_BT.where(own_BT, 0), self.table_VD, sparse=sparse)
        return own_BTD.where(own_BT[..., None], self.borrowed.lookup(behind_BT.clamp(min=0)))

    def logits(self, features_MD: Tensor) -> Tensor:
        """Return the logits of all pieces, borrowed ones included."""
        return F.linear(features_MD, *self.whole())

    def whole(self) -> tuple[Tensor, Tensor]:
        """Return table and output bias with the borrowed rows behind the language's own."""
        if self.borrowed is None:
            return self.table_VD, self.bias_V
        table_BD, bias_B = self.borrowed.rows()
        return torch.cat([self.table_VD, table_BD]), torch.cat([self.bias_V, bias_B])


class BorrowedRows(nn.Module):
    """The source's rows and output biases for B borrowed pieces: ids of the source, and references to its tensors.

    Legend: S source vocabulary.
    """

    ids_B: Tensor
    table_SD: Tensor
    bias_S: Tensor

    def __init__(self, ids_B: Tensor, source: Vocabulary) -> None:
        super().__init__()
        self.register_buffer("ids_B", ids_B.long(), persistent=False)
        self.register_buffer("table_SD", source.table_VD.detach().cpu(), persistent=False)
        self.register_buffer("bias_S", source.bias_V.detach().cpu(), persistent=False)

    def lookup(self, places_BT: Tensor) -> Tensor:
        """Return the rows (B, T, D) of borrowed pieces, counted from 0."""
        return F.embedding(self.ids_B[places_BT], self.table_SD)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Return copies of the rows (B, D) and output biases (B) of all borrowed pieces."""
        return self.table_SD[self.ids_B], self.bias_S[self.ids_B]


class Layer(nn.Module):
    """Post-LayerNorm transformer layer with one fused projection for queries, keys and values."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        width, feedforward = shape.width, shape.feedforward_width
        self.attention_heads, self.dropout = shape.attention_heads, shape.dropout
        self.activation = ACTIVATIONS[shape.family.activation]
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, shape.family.layer_norm_eps)
        self.up = nn.Linear(width, feedforward)
        self.down = nn.Linear(feedforward, width)
        self.output_norm = nn.LayerNorm(width, shape.family.layer_norm_eps)

    def forward(self, hidden_BTD: Tensor, visible_B11T: Tensor | None) -> Tensor:
        """Return the hidden states (B, T, D) after the layer; tokens attend to visible ones, or all to all."""
        batch, tokens, width = hidden_BTD.shape
        qkv = self.qkv(hidden_BTD).view(batch, tokens, 3, self.attention_heads, -1)
        query_BHTK, key_BHTK, value_BHTK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        drop = self.dropout if self.training else 0.0
        mixed_BHTK = F.scaled_dot_product_attention(query_BHTK, key_BHTK, value_BHTK, visible_B11T, drop)
        mixed_BTD = self.attention_out(mixed_BHTK.transpose(1, 2).reshape(batch, tokens, width))
        hidden_BTD = self.attention_norm(hidden_BTD + self._drop(mixed_BTD))
        return self.output_norm(hidden_BTD + self._drop(self.down(self.activation(self.up(hidden_BTD)))))

    def _drop(self, hidden_BTD: Tensor) -> Tensor:
        return F.dropout(hidden_BTD, self.dropout, self.training) if self.dropout else hidden_BTD


class MlmHead(nn.Module):
    """Dense, activation, LayerNorm; the output projection is the vocabulary's table, its bias the vocabulary's too."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense, self.activation, self.norm = mlm_head_layers(shape)

    def forward(self, hidden_MD: Tensor, vocabulary: Vocabulary) -> Tensor:
        """Logits (M, V) of the masked tokens' hidden states (M, D)."""
        return vocabulary.logits(self.features(hidden_MD))

    def features(self, hidden_MD: Tensor) -> Tensor:
        """Return the features (M, D) that the vocabulary's table makes logits of."""
        features_MD: Tensor = self.norm(self.activation(self.dense(hidden_MD)))
        return features_MD


class Encoder(nn.Module):
    """Body, MLM heads and one vocabulary."""

    def __init__(self, shape: EncoderShape, vocabulary_size: int) -> None:
        super().__init__()
        self.shape = shape
        """Whether training keeps only what passes between layers, and computes the rest again in the backward pass."""
        self.fused = False
        """Whether Inductor compiles layers and loss in training."""
        self.sparse_gradient = False
        """Whether the gradient of the rows looked up stays sparse on a CPU, with no head's gradient to be added to."""
        self.vocabulary = Vocabulary(vocabulary_size, shape.width)
        family = shape.family
        if not family.pre_norm:
            self.positions_TD = _embedding_table(shape.block_tokens + family.position_offset, shape.width)
        if family.segments:
            self.types_SD = _embedding_table(family.segments, shape.width)
        self.input_norm = layer_norm(shape)
        self.layers = build_layers(shape, range(shape.layers))
        # Pre-norm layers leave a sum that grows with depth. The final norm brings the top's to the scale that a head
        # reads, and would do so wrongly at another depth: each head has its own. It stands outside the head because
        # tasks, too, read what is normalised, and train it with the body; they read the top, head or not.
        normed = sorted({*shape.mlm_heads, shape.layers}) if family.pre_norm else ()
        self.final_norms = nn.ModuleDict({str(depth): layer_norm(shape) for depth in normed})
        self.heads = nn.ModuleDict({str(depth): MlmHead(shape) for depth in shape.mlm_heads})
        self.apply(init_weights)

    @property
    def device(self) -> torch.device:
        """Device that the encoder computes on."""
        return self.vocabulary.table_VD.device

    @property
    def depths(self) -> tuple[int, ...]:
        """Layers that carry an MLM head, rising."""
        return self.shape.mlm_heads

    def require_depth(self, depth: int) -> None:
        """Refuse a depth at which there is no head."""
        if depth not in self.depths:
            raise DepthError(
                f"depth {depth} has no MLM head: this primary has heads at {list(self.depths)}. Choose one of these, "
                "pretrain a primary with a head there (encoder.mlm_heads), or build a mini-model (system = 'MINIPOST')."
            )

    def hidden_states(
        self,
        tokens_BT: Tensor,
        depths: Iterable[int],
        visible_BT: Tensor | None = None,
        types_BT: Tensor | None = None,
        below_heads: bool = False,
    ) -> dict[int, Tensor]:
        """Hidden states (B, T, D) after each depth asked for; no layer above the deepest one is computed.

        Those of a pre-norm encoder are normalised at depths that have a head, and a sum of unlike scale at others.
        `visible_BT` is True where a token may be attended to; packed blocks, which have no padding, need none. With
        `below_heads`, MLM heads follow: their gradient of the table is dense, and so that of the rows looked up is left
        sparse on a CPU, to be added to it in place. A GPU would add sparse rows by atomics, in no fixed order; the
        dense gradient it sorts.
        """
        wanted = set(depths)
        for depth in wanted if below_heads else ():
            self.require_depth(depth)
        drop = self.shape.dropout
        sparse = tokens_BT.is_cpu and (below_heads or self.sparse_gradient)
        hidden_BTD = self.vocabulary.lookup(tokens_BT, sparse)
        hidden_BTD = self.input_norm(self._with_positions(hidden_BTD, types_BT))
        hidden_BTD = F.dropout(hidden_BTD, drop, self.training) if drop else hidden_BTD
        attentions = self._attentions(tokens_BT, visible_BT)
        found = {}
        for depth, layer in enumerate(self.layers[: max(wanted)], start=1):
            hidden_BTD = self._run_layer(layer, hidden_BTD, attentions[depth - 1])
            if depth in wanted:
                found[depth] = (
                    self.final_norms[str(depth)](hidden_BTD) if str(depth) in self.final_norms else hidden_BTD
                )
        return found

    def _attentions(self, tokens_BT: Tensor, visible_BT: Tensor | None) -> list[Any]:
        """Layers take this beside hidden states: the visible tokens, or `Attention` in pre-norm ones."""
        pre_norm = self.shape.family.pre_norm
        if pre_norm is None:
            visible_B11T = None if visible_BT is None else visible_BT[:, None, None, :]
            return [visible_B11T] * self.shape.layers
        everywhere = nearby = Attention.global_(tokens_BT, self.shape, pre_norm, visible_BT)
        if self.shape.layers > 1 and pre_norm.global_every > 1:
            nearby = Attention.local(tokens_BT, self.shape, pre_norm, visible_BT)
        return [nearby if number % pre_norm.global_every else everywhere for number in range(self.shape.layers)]

    def _run_layer(self, layer: nn.Module, hidden_BTD: Tensor, attention: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return layer(hidden_BTD, attention)
        through = compiled(_through) if self.fused else _through
        return through(layer, hidden_BTD, attention)

    def _with_positions(self, hidden_BTD: Tensor, types_BT: Tensor | None) -> Tensor:
        """Add the embeddings of positions and segments that the family has."""
        if self.shape.family.pre_norm:
            return hidden_BTD
        return hidden_BTD + self._position_embeddings(hidden_BTD.shape[1], types_BT)

    def _position_embeddings(self, tokens: int, types_BT: Tensor | None) -> Tensor:
        """Position embeddings (T, D), with those of segments (B, T, D) added where the family has them."""
        offset = self.shape.family.position_offset
        positions_TD = self.positions_TD[offset : offset + tokens]
        if not self.shape.family.segments:
            return positions_TD
        return positions_TD + (self.types_SD[0] if types_BT is None else F.embedding(types_BT, self.types_SD))

    def masked_logits(
        self, tokens_BT: Tensor, positions_M: Tensor, depths: Iterable[int], visible_BT: Tensor | None = None
    ) -> dict[int, Tensor]:
        """Return the logits (M, V) at masked positions only, from the head at each depth asked for."""
        features = self.features(self.hidden_states(tokens_BT, depths, visible_BT, below_heads=True), positions_M)
        return {depth: self.vocabulary.logits(features_MD) for depth, features_MD in features.items()}

    def features(self, hidden: Mapping[int, Tensor], positions_M: Tensor) -> dict[int, Tensor]:
        """Return the features (M, D) at masked positions of hidden states (B, T, D), by the depth of the head."""
        heads = {depth: cast(MlmHead, self.heads[str(depth)]) for depth in hidden}
        return {depth: head.features(hidden[depth].flatten(0, 1)[positions_M]) for depth, head in heads.items()}

    def body_tensors(self) -> dict[str, Tensor]:
        """Everything but the vocabulary, by name."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("vocabulary.")}


def _through(layer: nn.Module, hidden_BTD: Tensor, attention: Any) -> Tensor:
    """Compile this, not each layer: layers of one kind then share one graph."""
    found_BTD: Tensor = layer(hidden_BTD, attention)
    return found_BTD


def fresh_layers(shape: EncoderShape, count: int) -> nn.ModuleList:
    """Layers of random weights, as pretraining begins with above the first, drawn from torch's global generator."""
    return build_layers(shape, range(1, 1 + count)).apply(init_weights)


def fresh_head(shape: EncoderShape) -> MlmHead:
    """An MLM head of random weights, drawn from torch's global generator."""
    return MlmHead(shape).apply(init_weights)


def build_layers(shape: EncoderShape, numbers: range) -> nn.ModuleList:
    """Layers of the family for the places given, which are counted from 0."""
    if shape.family.pre_norm:
        return nn.ModuleList(PreNormLayer(shape, is_first=number == 0) for number in numbers)
    return nn.ModuleList(Layer(shape) for _ in numbers)


def mini_model(
    primary: Encoder, depth: int, fresh: Sequence[nn.Module] | nn.ModuleList = (), head: MlmHead | None = None
) -> Encoder:
    """The bottom of a primary as a model of its own; nothing is copied, all modules are shared.

    Without fresh layers its MLM head is the one that the primary was trained with at `depth` (MINIJOINT); with them it
    is the primary's last one, above the fresh layers (MINIPOST, section 2), or `head`, if the primary has none. The
    bottom of a primary without any head has none either, as it serves to learn by sentence pairs.
    """
    headed = primary.shape.layers if fresh else depth
    has_head = head is not None or bool(fresh) or bool(primary.depths)
    if head is None and has_head:
        primary.require_depth(headed)
    top = depth + len(fresh)
    with torch.device("meta"):
        mini = Encoder(primary.shape.cut(top, (top,) if has_head else ()), 0)
    mini.vocabulary, mini.input_norm = primary.vocabulary, primary.input_norm
    for name, embeddings in primary.named_parameters(recurse=False):  # of positions and segments
        setattr(mini, name, embeddings)
    mini.layers = nn.ModuleList([*primary.layers[:depth], *fresh])
    if not has_head:
        return mini
    mini.heads = nn.ModuleDict({str(top): primary.heads[str(headed)] if head is None else head})
    if primary.shape.family.pre_norm:
        mini.final_norms = nn.ModuleDict({str(top): primary.final_norms[str(headed)]})
    return mini


def freeze_except(model: nn.Module, trained: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Freeze all parameters of a model but some, which are returned.

    Frozen parameters get no gradient, and layers below all that is trained are computed without autograd.
    """
    trained = list(trained)
    model.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    return trained


def _embedding_table(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(count, width).normal_(std=INITIAL_STD))


def init_weights(module: nn.Module) -> None:
    """BERT's initialisation: normal weights of standard deviation 0.02, zero biases."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
