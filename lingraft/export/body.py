"""Graphs of bodies and heads: from rows of a token table to the last layer's hidden states, and from these to outputs.

Heads are float32 in every precision of the body: they are small, and logits depend on them.

int8 has one scale for each output channel of a weight and, computed at run time, one for each token. A token's result
thus does not depend on the other texts of its batch, as it would with DynamicQuantizeMatMul, which has one scale for a
whole tensor. Weights are limited to 7 bits (-63 to 63), because processors without VNNI add pairs of products in 16
bits, which 8-bit weights overflow: results must not depend on the processor.

Legend: B batch, T tokens, D width, C classes, I inputs and O outputs of a matrix.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn

from lingraft.bundle.format import FEATURES, HIDDEN, Precision
from lingraft.config.encoder import Activation
from lingraft.export.graph import Graph
from lingraft.model.encoder import Encoder, Layer, MlmHead
from lingraft.tasks.classification import Classifier

COMPUTE_DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "int8": torch.float32}
"""Number format of all operators of a body except its matrix products, by precision."""
_WEIGHT_MAX = 63
_TOKEN_MAX = 127
_ZERO_POINT = 128
_SMALLEST_MAXIMUM = 1e-12
"""Lower limit of a row's maximum, so that rows of zeros are not divided by zero."""

Outputs = Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]]
"""Outputs of a graph by name, with their shapes."""


class BodyInputs(NamedTuple):
    """Inputs of a body's graph."""

    embedded_BTD: onnx_ir.Value
    visible_BT: onnx_ir.Value
    types_BT: onnx_ir.Value | None


def add_body(
    graph: Graph, encoder: Encoder, inputs: BodyInputs, precision: Precision, first_only: bool
) -> onnx_ir.Value:
    """Add an encoder's layers to a graph, and return the hidden states (B, T, D) of the last one, in float32.

    In fp16 all but the embedding's LayerNorm is float16. With `first_only` the last layer computes only the first
    token's state (B, 1, D).
    """
    dtype = COMPUTE_DTYPES[precision]
    mask_BT = graph.op("Cast", inputs.visible_BT, to=onnx_ir.DataType.INT32)
    hidden_BTD = _add_embedding(graph, encoder, inputs)
    if dtype != torch.float32:
        hidden_BTD = graph.cast(hidden_BTD, dtype)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        last = number == len(encoder.layers) - 1
        writer = _LayerWriter(graph, layer, encoder.shape.family.activation, f"layers.{number}", precision)
        hidden_BTD = writer.write(hidden_BTD, mask_BT, first_only and last)
    return hidden_BTD if dtype == torch.float32 else graph.cast(hidden_BTD, torch.float32)


def _add_embedding(graph: Graph, encoder: Encoder, inputs: BodyInputs) -> onnx_ir.Value:
    """Add positions and segments to the rows, and a LayerNorm; always in float32."""
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


def _add_activation(graph: Graph, value: onnx_ir.Value, bias: onnx_ir.Value, activation: Activation) -> onnx_ir.Value:
    if activation == "relu":
        return graph.op("Relu", graph.op("Add", value, bias))
    return graph.fused({"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}[activation], value, bias)


class _LayerWriter:
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
        activated = _add_activation(self._graph, self._product(between, "up"), self._bias("up"), self._activation)
        return self._residual_block(activated, "down", between, "output_norm")

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

    def _residual_block(self, value: onnx_ir.Value, linear: str, residual: onnx_ir.Value, norm: str) -> onnx_ir.Value:
        product, module = self._product(value, linear), getattr(self._layer, norm)
        bias = self._bias(linear)
        scale = self._graph.weight(f"{self._name}.{norm}.weight", module.weight.to(self._dtype))
        shift = self._graph.weight(f"{self._name}.{norm}.bias", module.bias.to(self._dtype))
        return self._graph.fused("SkipLayerNormalization", product, residual, scale, shift, bias, epsilon=module.eps)

    def _product(self, value: onnx_ir.Value, linear: str) -> onnx_ir.Value:
        weight_OI = getattr(self._layer, linear).weight
        return add_matmul(self._graph, value, f"{self._name}.{linear}.weight", weight_OI, self._precision)

    def _bias(self, linear: str) -> onnx_ir.Value:
        bias_O = getattr(self._layer, linear).bias
        return self._graph.weight(f"{self._name}.{linear}.bias", bias_O.to(self._dtype))


def add_classifier(graph: Graph, net: Classifier, first_B1D: onnx_ir.Value) -> Outputs:
    """Add RoBERTa's classification head on the first token's state."""
    assert isinstance(net.dense, nn.Linear)
    first_BD = graph.op("Squeeze", first_B1D, graph.constant([1]))
    features_BD = graph.op("Tanh", _add_linear(graph, first_BD, net.dense, "dense"))
    return {"logits_BC": (_add_linear(graph, features_BD, net.out, "out"), ["batch", net.out.out_features])}


def add_token_head(graph: Graph, out: nn.Linear, hidden_BTD: onnx_ir.Value, name: str) -> Outputs:
    """Add a linear layer at every token, for tags or for starts and ends of answers."""
    return {name: (_add_linear(graph, hidden_BTD, out, "out"), ["batch", "tokens", out.out_features])}


def add_mlm_head(graph: Graph, head: MlmHead, name: str, activation: Activation, hidden_BTD: onnx_ir.Value) -> Outputs:
    """Add an MLM head up to the features whose products with a token table are logits; output hidden states too."""
    assert isinstance(head.dense, nn.Linear)
    assert isinstance(head.norm, nn.LayerNorm)
    product = add_matmul(graph, hidden_BTD, f"{name}.dense.weight", head.dense.weight, "fp32")
    bias = graph.weight(f"{name}.dense.bias", head.dense.bias)
    scale = graph.weight(f"{name}.norm.weight", head.norm.weight)
    shift = graph.weight(f"{name}.norm.bias", head.norm.bias)
    activated = _add_activation(graph, product, bias, activation)
    features_BTD = graph.op("LayerNormalization", activated, scale, shift, axis=-1, epsilon=head.norm.eps)
    # Not all runtimes accept an output that is also an input of other nodes.
    shape: Sequence[str | int] = ["batch", "tokens", head.dense.out_features]
    return {HIDDEN: (graph.op("Identity", hidden_BTD), shape), FEATURES: (features_BTD, shape)}


def _add_linear(graph: Graph, value: onnx_ir.Value, module: nn.Linear, name: str) -> onnx_ir.Value:
    product = add_matmul(graph, value, f"{name}.weight", module.weight, "fp32")
    return graph.op("Add", product, graph.weight(f"{name}.bias", module.bias))


def add_matmul(graph: Graph, value: onnx_ir.Value, name: str, weight_OI: Tensor, precision: Precision) -> onnx_ir.Value:
    """Add the product of a tensor's last axis with a weight, which ONNX stores as (I, O)."""
    if precision != "int8":
        return graph.op("MatMul", value, graph.weight(name, weight_OI.T.to(COMPUTE_DTYPES[precision])))
    stored_IO, scale_O = quantise(weight_OI.T.float())
    # The largest absolute value of each token; two reductions cost less memory traffic than `Abs`.
    last = graph.constant([-1])
    highest = graph.op("ReduceMax", value, last)
    lowest = graph.op("ReduceMin", value, last)
    largest = graph.op("Max", highest, graph.op("Neg", lowest), graph.constant(_SMALLEST_MAXIMUM, np.float32))
    step = graph.constant(1 / _TOKEN_MAX, np.float32)
    zero = graph.constant(_ZERO_POINT, np.uint8)
    quantised = graph.op("QuantizeLinear", graph.op("Div", value, largest), step, zero)
    weight = graph.weight(f"{name}.int8", stored_IO)
    scale = graph.weight(f"{name}.scale", scale_O)
    return graph.op("Mul", graph.fused("MatMulIntegerToFloat", quantised, weight, step, scale, zero), largest)


def quantise(weight_IO: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a weight to int8 values (I, O) with scales (O) of its output channels."""
    scale_O = weight_IO.abs().amax(0).clamp(min=_SMALLEST_MAXIMUM) / _WEIGHT_MAX
    return (weight_IO / scale_O).round().to(torch.int8), scale_O
