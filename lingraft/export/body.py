"""The graph of an encoder's body, from rows of a token table to the states of its last layer.

Legend: B batch, T tokens, D width, F feed-forward.
"""

from typing import NamedTuple

import onnx_ir
import torch
from torch import nn

from lingraft.bundle.format import Precision
from lingraft.config.encoder import Activation
from lingraft.export.graph import Graph
from lingraft.export.matrix_products import COMPUTE_DTYPES, add_matmul
from lingraft.model.encoder import Encoder, Layer


class BodyInputs(NamedTuple):
    """What goes into a body."""

    embedded_BTD: onnx_ir.Value
    visible_BT: onnx_ir.Value
    types_BT: onnx_ir.Value | None


def add_body(
    graph: Graph, encoder: Encoder, given: BodyInputs, precision: Precision, first_only: bool
) -> onnx_ir.Value:
    """States (B, T, D) of the last layer.

    Args:
        graph: to write into.
        encoder: body, whatever vocabulary it has.
        given: rows of a table, in float32, and what is padding.
        precision: of products; fp16 is of all but the embedding's LayerNorm.
        first_only: whether only the first token's state (B, 1, D) is asked for: the last layer then computes no other.
    """
    kept_BT = graph.op("Cast", given.visible_BT, to=onnx_ir.DataType.INT32)
    hidden_BTD = _add_embedding(graph, encoder, given)
    if COMPUTE_DTYPES[precision] != torch.float32:
        hidden_BTD = graph.cast(hidden_BTD, COMPUTE_DTYPES[precision])
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        last = number == len(encoder.layers) - 1
        writer = _LayerWriter(graph, layer, encoder.shape.family.activation, f"layers.{number}", precision)
        hidden_BTD = writer.write(hidden_BTD, kept_BT, first_only and last)
    return hidden_BTD


def _add_embedding(graph: Graph, encoder: Encoder, given: BodyInputs) -> onnx_ir.Value:
    """Rows with positions and segments added, normalised; float32 always."""
    family, tokens = encoder.shape.family, graph.op("Shape", given.embedded_BTD, start=1, end=2)
    offset, first = graph.constant([family.position_offset]), graph.constant([0])
    positions = graph.weight("positions_TD", encoder.positions_TD)
    added = graph.op("Slice", positions, offset, graph.op("Add", tokens, offset), first)
    added = graph.op("Unsqueeze", added, first)
    if given.types_BT is not None:
        types = graph.op("Gather", graph.weight("types_SD", encoder.types_SD), given.types_BT)
        added = graph.op("Add", added, types)
    return _add_layer_norm(graph, given.embedded_BTD, added, encoder.input_norm, "input_norm", torch.float32)


def _add_layer_norm(
    graph: Graph,
    value: onnx_ir.Value,
    added: onnx_ir.Value,
    norm: nn.Module,
    name: str,
    dtype: torch.dtype,
    bias: onnx_ir.Value | None = None,
) -> onnx_ir.Value:
    assert isinstance(norm, nn.LayerNorm)
    scale, shift = (
        graph.weight(f"{name}.weight", norm.weight.to(dtype)),
        graph.weight(f"{name}.bias", norm.bias.to(dtype)),
    )
    return graph.fused("SkipLayerNormalization", value, added, scale, shift, bias, epsilon=norm.eps)


def add_activation(graph: Graph, value: onnx_ir.Value, bias: onnx_ir.Value, activation: Activation) -> onnx_ir.Value:
    """A product with its bias, through an activation."""
    if activation == "relu":
        return graph.op("Relu", graph.op("Add", value, bias))
    return graph.fused({"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}[activation], value, bias)


class _LayerWriter:
    """Writes one post-LayerNorm layer."""

    def __init__(self, graph: Graph, layer: Layer, activation: Activation, name: str, precision: Precision) -> None:
        self._graph, self._layer, self._activation, self._name = graph, layer, activation, name
        self._precision, self._dtype = precision, COMPUTE_DTYPES[precision]

    def write(self, hidden_BTD: onnx_ir.Value, kept_BT: onnx_ir.Value, first_only: bool) -> onnx_ir.Value:
        mixed, entering = self._attention(hidden_BTD, kept_BT, first_only)
        between = self._block(mixed, "attention_out", entering, "attention_norm")
        return self._block(self._activated(self._product(between, "up")), "down", between, "output_norm")

    def _attention(
        self, hidden_BTD: onnx_ir.Value, kept_BT: onnx_ir.Value, first_only: bool
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """What attention mixes, and the states that it is added to."""
        query, key, value = self._graph.split(self._product(hidden_BTD, "qkv"), 3)
        if first_only:
            query, hidden_BTD = self._first(query), self._first(hidden_BTD)
        mixed = self._graph.fused(
            "MultiHeadAttention",
            query,
            key,
            value,
            self._bias("qkv"),
            kept_BT,
            num_heads=self._layer.attention_heads,
            mask_filter_value=torch.finfo(self._dtype).min,
        )
        return mixed, hidden_BTD

    def _first(self, value_BTD: onnx_ir.Value) -> onnx_ir.Value:
        bounds = (self._graph.constant([bound]) for bound in (0, 1, 1))
        return self._graph.op("Slice", value_BTD, *bounds)

    def _block(self, value: onnx_ir.Value, linear: str, added: onnx_ir.Value, norm: str) -> onnx_ir.Value:
        """A product, its bias and the states before it, normalised."""
        bias, module = self._bias(linear), getattr(self._layer, norm)
        found = self._product(value, linear)
        return _add_layer_norm(self._graph, found, added, module, f"{self._name}.{norm}", self._dtype, bias)

    def _activated(self, value_BTF: onnx_ir.Value) -> onnx_ir.Value:
        return add_activation(self._graph, value_BTF, self._bias("up"), self._activation)

    def _product(self, value: onnx_ir.Value, linear: str) -> onnx_ir.Value:
        weight_OI = getattr(self._layer, linear).weight
        return add_matmul(self._graph, value, f"{self._name}.{linear}.weight", weight_OI, self._precision)

    def _bias(self, linear: str) -> onnx_ir.Value:
        bias_O = getattr(self._layer, linear).bias
        return self._graph.weight(f"{self._name}.{linear}.bias", bias_O.to(self._dtype))
