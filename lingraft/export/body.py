"""The graph of an encoder's body: from rows of a token table to the hidden states of the last layer.

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
    """Inputs of a body's graph."""

    embedded_BTD: onnx_ir.Value
    visible_BT: onnx_ir.Value
    types_BT: onnx_ir.Value | None


def add_body(
    graph: Graph, encoder: Encoder, inputs: BodyInputs, precision: Precision, first_only: bool
) -> onnx_ir.Value:
    """Add an encoder's layers to a graph, and return the hidden states (B, T, D) of the last one.

    Args:
        graph: graph that gets the nodes.
        encoder: encoder to export; its vocabulary is not used.
        inputs: rows of a token table in float32, and the mask of tokens.
        precision: precision of matrix products; in fp16 all but the embedding's LayerNorm is float16.
        first_only: whether the last layer computes only the first token's state (B, 1, D).
    """
    mask_BT = graph.op("Cast", inputs.visible_BT, to=onnx_ir.DataType.INT32)
    hidden_BTD = _add_embedding(graph, encoder, inputs)
    if COMPUTE_DTYPES[precision] != torch.float32:
        hidden_BTD = graph.cast(hidden_BTD, COMPUTE_DTYPES[precision])
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        last = number == len(encoder.layers) - 1
        writer = _LayerWriter(graph, layer, encoder.shape.family.activation, f"layers.{number}", precision)
        hidden_BTD = writer.write(hidden_BTD, mask_BT, first_only and last)
    return hidden_BTD


def _add_embedding(graph: Graph, encoder: Encoder, inputs: BodyInputs) -> onnx_ir.Value:
    """Add positions and segments to the rows, and a LayerNorm; always in float32."""
    family = encoder.shape.family
    tokens = graph.op("Shape", inputs.embedded_BTD, start=1, end=2)
    offset = graph.constant([family.position_offset])
    first = graph.constant([0])
    positions = graph.weight("positions_TD", encoder.positions_TD)
    added = graph.op("Slice", positions, offset, graph.op("Add", tokens, offset), first)
    added = graph.op("Unsqueeze", added, first)
    if inputs.types_BT is not None:
        types = graph.op("Gather", graph.weight("types_SD", encoder.types_SD), inputs.types_BT)
        added = graph.op("Add", added, types)
    return _add_layer_norm(
        graph=graph,
        value=inputs.embedded_BTD,
        added=added,
        norm=encoder.input_norm,
        name="input_norm",
        dtype=torch.float32,
    )


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
    scale = graph.weight(f"{name}.weight", norm.weight.to(dtype))
    shift = graph.weight(f"{name}.bias", norm.bias.to(dtype))
    return graph.fused("SkipLayerNormalization", value, added, scale, shift, bias, epsilon=norm.eps)


def add_activation(graph: Graph, value: onnx_ir.Value, bias: onnx_ir.Value, activation: Activation) -> onnx_ir.Value:
    """Add a bias and an activation to a matrix product."""
    if activation == "relu":
        return graph.op("Relu", graph.op("Add", value, bias))
    return graph.fused({"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}[activation], value, bias)


class _LayerWriter:
    """Writes one post-LayerNorm layer."""

    def __init__(self, graph: Graph, layer: Layer, activation: Activation, name: str, precision: Precision) -> None:
        self._graph = graph
        self._layer = layer
        self._activation = activation
        self._name = name
        self._precision = precision
        self._dtype = COMPUTE_DTYPES[precision]

    def write(self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, first_only: bool) -> onnx_ir.Value:
        attended, residual = self._attention(hidden_BTD, mask_BT, first_only)
        between = self._block(attended, "attention_out", residual, "attention_norm")
        return self._block(self._activated(self._product(between, "up")), "down", between, "output_norm")

    def _attention(
        self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, first_only: bool
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return the output of attention, and the states that it is added to."""
        query, key, value = self._graph.split(self._product(hidden_BTD, "qkv"), 3)
        if first_only:
            query, hidden_BTD = self._first(query), self._first(hidden_BTD)
        attended = self._graph.fused(
            "MultiHeadAttention",
            query,
            key,
            value,
            self._bias("qkv"),
            mask_BT,
            num_heads=self._layer.attention_heads,
            mask_filter_value=torch.finfo(self._dtype).min,
        )
        return attended, hidden_BTD

    def _first(self, value_BTD: onnx_ir.Value) -> onnx_ir.Value:
        bounds = (self._graph.constant([bound]) for bound in (0, 1, 1))
        return self._graph.op("Slice", value_BTD, *bounds)

    def _block(self, value: onnx_ir.Value, linear: str, added: onnx_ir.Value, norm: str) -> onnx_ir.Value:
        """Add a linear layer, its residual connection and its LayerNorm."""
        return _add_layer_norm(
            graph=self._graph,
            value=self._product(value, linear),
            added=added,
            norm=getattr(self._layer, norm),
            name=f"{self._name}.{norm}",
            dtype=self._dtype,
            bias=self._bias(linear),
        )

    def _activated(self, value_BTF: onnx_ir.Value) -> onnx_ir.Value:
        return add_activation(self._graph, value_BTF, self._bias("up"), self._activation)

    def _product(self, value: onnx_ir.Value, linear: str) -> onnx_ir.Value:
        weight_OI = getattr(self._layer, linear).weight
        return add_matmul(self._graph, value, f"{self._name}.{linear}.weight", weight_OI, self._precision)

    def _bias(self, linear: str) -> onnx_ir.Value:
        bias_O = getattr(self._layer, linear).bias
        return self._graph.weight(f"{self._name}.{linear}.bias", bias_O.to(self._dtype))
