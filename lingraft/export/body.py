"""Graphs of bodies: from rows of a token table to the last layer's hidden states.

Legend: B batch, T tokens, D width.
"""

from typing import NamedTuple, cast

import onnx_ir
import torch
from torch import nn

from lingraft.bundle.format import Precision
from lingraft.config.encoder import Activation
from lingraft.export.graph_builder import Graph
from lingraft.export.operators import COMPUTE_DTYPES, add_activation, add_bias, add_first, add_matmul, add_norm
from lingraft.export.pre_norm import add_pre_norm_layers
from lingraft.model.encoder import Encoder, Layer


class BodyInputs(NamedTuple):
    """Inputs of a body's graph."""

    embedded_BTD: onnx_ir.Value
    visible_BT: onnx_ir.Value
    types_BT: onnx_ir.Value | None


def add_body(
    graph: Graph, encoder: Encoder, inputs: BodyInputs, precision: Precision, first_only: bool
) -> onnx_ir.Value:
    """Add an encoder's layers to a graph, and return the hidden states (B, T, D) of the last one, in float32.

    In fp16 all but the LayerNorms of the embedding and above pre-norm layers is float16. With `first_only` the last
    layer computes only the first token's state (B, 1, D).
    """
    dtype, layers = COMPUTE_DTYPES[precision], encoder.shape.layers
    is_pre_norm = encoder.shape.family.pre_norm is not None
    mask_BT = graph.op("Cast", inputs.visible_BT, to=onnx_ir.DataType.INT32)
    hidden_BTD = _add_embedding(graph, encoder, inputs)
    if dtype != torch.float32:
        hidden_BTD = graph.cast(hidden_BTD, dtype)
    add_layers = add_pre_norm_layers if is_pre_norm else _add_post_norm_layers
    hidden_BTD = add_layers(
        graph=graph,
        encoder=encoder,
        hidden_BTD=hidden_BTD,
        mask_BT=mask_BT,
        precision=precision,
        first_only=first_only,
    )
    if dtype != torch.float32:
        hidden_BTD = graph.cast(hidden_BTD, torch.float32)
    if not is_pre_norm:
        return hidden_BTD
    return add_norm(graph, hidden_BTD, cast(nn.LayerNorm, encoder.final_norms[str(layers)]), f"final_norms.{layers}")


def _add_post_norm_layers(
    graph: Graph,
    encoder: Encoder,
    hidden_BTD: onnx_ir.Value,
    mask_BT: onnx_ir.Value,
    precision: Precision,
    first_only: bool,
) -> onnx_ir.Value:
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        last = number == len(encoder.layers) - 1
        writer = _PostNormLayerWriter(graph, layer, encoder.shape.family.activation, f"layers.{number}", precision)
        hidden_BTD = writer.write(hidden_BTD, mask_BT, first_only and last)
    return hidden_BTD


def _add_embedding(graph: Graph, encoder: Encoder, inputs: BodyInputs) -> onnx_ir.Value:
    """Add a LayerNorm of the rows, with the embeddings of positions and segments that there are; always in float32."""
    if encoder.shape.family.pre_norm:
        return add_norm(graph, inputs.embedded_BTD, encoder.input_norm, "input_norm")
    tokens = graph.op("Shape", inputs.embedded_BTD, start=1, end=2)
    offset = graph.constant([encoder.shape.family.position_offset])
    first = graph.constant([0])
    positions = graph.weight("positions_TD", encoder.positions_TD)
    added = graph.op("Slice", positions, offset, graph.op("Add", tokens, offset), first)
    added = graph.op("Unsqueeze", added, first)
    if inputs.types_BT is not None:
        types = graph.op("Gather", graph.weight("types_SD", encoder.types_SD), inputs.types_BT)
        added = graph.op("Add", added, types)
    norm = encoder.input_norm
    scale = graph.weight("input_norm.weight", norm.weight)
    shift = graph.weight("input_norm.bias", norm.bias)
    return graph.fused("SkipLayerNormalization", inputs.embedded_BTD, added, scale, shift, None, epsilon=norm.eps)


class _PostNormLayerWriter:
    def __init__(self, graph: Graph, layer: Layer, activation: Activation, name: str, precision: Precision) -> None:
        self._graph = graph
        self._layer = layer
        self._activation = activation
        self._name = name
        self._precision = precision
        self._dtype = COMPUTE_DTYPES[precision]

    def write(self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, first_only: bool) -> onnx_ir.Value:
        attended, residual = self._attention(hidden_BTD, mask_BT, first_only)
        between = self._residual_block(attended, "attention_out", residual, "attention_norm")
        activated = add_activation(self._graph, self._product(between, "up"), self._bias("up"), self._activation)
        return self._residual_block(activated, "down", between, "output_norm")

    def _attention(
        self, hidden_BTD: onnx_ir.Value, mask_BT: onnx_ir.Value, first_only: bool
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return the output of attention, and the states that it is added to."""
        query, key, value = self._graph.split(self._product(hidden_BTD, "qkv"), 3)
        if first_only:
            query, hidden_BTD = add_first(self._graph, query), add_first(self._graph, hidden_BTD)
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

    def _residual_block(self, value: onnx_ir.Value, linear: str, residual: onnx_ir.Value, norm: str) -> onnx_ir.Value:
        product, module = self._product(value, linear), getattr(self._layer, norm)
        bias = self._bias(linear)
        scale = self._graph.weight(f"{self._name}.{norm}.weight", module.weight.to(self._dtype))
        shift = self._graph.weight(f"{self._name}.{norm}.bias", module.bias.to(self._dtype))
        return self._graph.fused("SkipLayerNormalization", product, residual, scale, shift, bias, epsilon=module.eps)

    def _product(self, value: onnx_ir.Value, linear: str) -> onnx_ir.Value:
        weight_OI = getattr(self._layer, linear).weight
        return add_matmul(self._graph, value, f"{self._name}.{linear}.weight", weight_OI, self._precision)

    def _bias(self, linear: str) -> onnx_ir.Value | None:
        return add_bias(self._graph, getattr(self._layer, linear), f"{self._name}.{linear}", self._precision)
