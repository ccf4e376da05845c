"""Graphs of pre-norm layers, those of ModernBERT.

Legend: B batch, T tokens, D width, K width of a head, F feed-forward.
"""

from typing import NamedTuple

import numpy as np
import onnx_ir
import torch

from lingraft.bundle.format import Precision
from lingraft.config.encoder import EncoderShape
from lingraft.export.graph_builder import Graph
from lingraft.export.operators import COMPUTE_DTYPES, add_activation, add_first, add_linear, add_norm
from lingraft.model.encoder import Encoder
from lingraft.model.pre_norm import PreNormLayer, pre_norm_of, rotary_frequencies


class _AttentionInputs(NamedTuple):
    """Inputs of attention that all global, or all local, layers share."""

    cos_TK: onnx_ir.Value
    """Cosines of the first half of K, as `sin_TK` has its sines: the second half has the same angles."""
    sin_TK: onnx_ir.Value
    bias_11TT: onnx_ir.Value | None
    """Added to the scores, so that no token sees one out of reach; None where all are within."""


def add_pre_norm_layers(
    graph: Graph,
    encoder: Encoder,
    hidden_BTD: onnx_ir.Value,
    mask_BT: onnx_ir.Value,
    precision: Precision,
    first_only: bool,
) -> onnx_ir.Value:
    """Add all layers, without the final norm. With `first_only` the last computes only the first token's state."""
    shape, settings = encoder.shape, pre_norm_of(encoder.shape)
    tokens = graph.op("Squeeze", graph.op("Shape", hidden_BTD, start=1, end=2))
    places_T = graph.op("Range", graph.constant(0), tokens, graph.constant(1))
    dtype = COMPUTE_DTYPES[precision]
    everywhere = _AttentionInputs(*_add_rotation(graph, places_T, shape, settings.global_base, dtype), None)
    nearby = everywhere
    if settings.global_every > 1 and shape.layers > 1:
        sight = None
        if shape.block_tokens > settings.reach + 1:
            sight = _add_reach(graph, places_T, settings.reach, dtype)
        nearby = _AttentionInputs(*_add_rotation(graph, places_T, shape, settings.local_base, dtype), sight)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, PreNormLayer)
        attention = nearby if number % settings.global_every else everywhere
        writer = _PreNormLayerWriter(graph, layer, shape, f"layers.{number}", precision)
        last = number == shape.layers - 1
        hidden_BTD = writer.write(hidden_BTD, mask_BT, attention, first_only and last)
    return hidden_BTD


def _add_rotation(
    graph: Graph, places_T: onnx_ir.Value, shape: EncoderShape, base: float, dtype: torch.dtype
) -> tuple[onnx_ir.Value, onnx_ir.Value]:
    """Add cosines and sines of the angles by which places turn a head's columns, of float32 angles."""
    frequencies = rotary_frequencies(shape, base).numpy()
    places_T1 = graph.op("Unsqueeze", graph.cast(places_T, torch.float32), graph.constant([1]))
    angle_TK = graph.op("Mul", places_T1, graph.constant(frequencies, np.float32))
    cos_TK, sin_TK = graph.op("Cos", angle_TK), graph.op("Sin", angle_TK)
    if dtype == torch.float32:
        return cos_TK, sin_TK
    return graph.cast(cos_TK, dtype), graph.cast(sin_TK, dtype)


def _add_reach(graph: Graph, places_T: onnx_ir.Value, reach: int, dtype: torch.dtype) -> onnx_ir.Value:
    """Add what is 0 (1, 1, T, T) where a key is within reach of a query, and far below elsewhere."""
    own, other = (graph.op("Unsqueeze", places_T, graph.constant(axes)) for axes in ([0, 1, 3], [0, 1, 2]))
    near = graph.op("LessOrEqual", graph.op("Abs", graph.op("Sub", own, other)), graph.constant(reach))
    scores = np.float16 if dtype == torch.float16 else np.float32
    return graph.op("Where", near, graph.constant(0, scores), graph.constant(_hidden(dtype), scores))


def _hidden(dtype: torch.dtype) -> float:
    """Score added to a key that is not seen: two of these, for padding that is out of reach as well, stay finite."""
    return torch.finfo(dtype).min / 2


class _PreNormLayerWriter:
    def __init__(self, graph: Graph, layer: PreNormLayer, shape: EncoderShape, name: str, precision: Precision) -> None:
        self._graph = graph
        self._layer = layer
        self._activation = shape.family.activation
        self._name = name
        self._precision = precision

    def write(
        self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, attention: _AttentionInputs, first_only: bool
    ) -> onnx_ir.Value:
        mixed_BTD = self._attention(hidden_BTD, mask_BT, attention, first_only)
        residual_BTD = add_first(self._graph, hidden_BTD) if first_only else hidden_BTD
        between_BTD = self._graph.op("Add", residual_BTD, self._linear(mixed_BTD, "attention_out"))
        up_BTF, gate_BTF = self._graph.split(self._linear(self._norm(between_BTD, "feedforward_norm"), "up"), 2)
        activated_BTF = self._graph.op("Mul", add_activation(self._graph, up_BTF, None, self._activation), gate_BTF)
        return self._graph.op("Add", between_BTD, self._linear(activated_BTF, "down"))

    def _attention(
        self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, attention: _AttentionInputs, first_only: bool
    ) -> onnx_ir.Value:
        is_bare = isinstance(self._layer.attention_norm, torch.nn.Identity)
        normed_BTD = hidden_BTD if is_bare else self._norm(hidden_BTD, "attention_norm")
        query, key, value = self._graph.split(self._linear(normed_BTD, "qkv"), 3)
        bias = attention.bias_11TT
        if first_only:  # the first place turns nothing
            query, bias = add_first(self._graph, query), None if bias is None else add_first(self._graph, bias, axis=2)
        else:
            query = self._rotate(query, attention)
        return self._graph.fused(
            "MultiHeadAttention",
            query,
            self._rotate(key, attention),
            value,
            None,
            mask_BT,
            bias,
            num_heads=self._layer.attention_heads,
            mask_filter_value=_hidden(COMPUTE_DTYPES[self._precision]),
        )

    def _rotate(self, value_BTD: onnx_ir.Value, attention: _AttentionInputs) -> onnx_ir.Value:
        begin = self._graph.constant([0])
        return self._graph.fused("RotaryEmbedding", value_BTD, begin, attention.cos_TK, attention.sin_TK)

    def _norm(self, value: onnx_ir.Value, norm: str) -> onnx_ir.Value:
        return add_norm(self._graph, value, getattr(self._layer, norm), f"{self._name}.{norm}", self._precision)

    def _linear(self, value: onnx_ir.Value, linear: str) -> onnx_ir.Value:
        module = getattr(self._layer, linear)
        return add_linear(self._graph, value, module, f"{self._name}.{linear}", self._precision)
