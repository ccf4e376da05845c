"""Operators that graphs are made of: products in each precision, LayerNorms and activations.

int8 has one scale for each output channel of a weight and, computed at run time, one for each token. A token's result
thus does not depend on the other texts of its batch, as it would with DynamicQuantizeMatMul, which has one scale for a
whole tensor. Weights are limited to 7 bits (-63 to 63), because processors without VNNI add pairs of products in 16
bits, which 8-bit weights overflow: results must not depend on the processor.

Legend: I inputs and O outputs of a matrix.
"""

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn

from lingraft.bundle.format import Precision
from lingraft.config.encoder import Activation
from lingraft.export.graph_builder import Graph

COMPUTE_DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "int8": torch.float32}
"""Number format of all operators of a body except its matrix products, by precision."""
_WEIGHT_MAX = 63
_TOKEN_MAX = 127
_ZERO_POINT = 128
_SMALLEST_MAXIMUM = 1e-12
"""Lower limit of a row's maximum, so that rows of zeros are not divided by zero."""


def add_linear(
    graph: Graph, value: onnx_ir.Value, module: nn.Linear, name: str, precision: Precision = "fp32"
) -> onnx_ir.Value:
    """Add a linear layer, with a bias if it has one."""
    product = add_matmul(graph, value, f"{name}.weight", module.weight, precision)
    bias = add_bias(graph, module, name, precision)
    return product if bias is None else graph.op("Add", product, bias)


def add_bias(
    graph: Graph, module: nn.Linear | nn.LayerNorm, name: str, precision: Precision = "fp32"
) -> onnx_ir.Value | None:
    """Add the bias of a linear layer or a LayerNorm; None if it has none."""
    if module.bias is None:
        return None
    return graph.weight(f"{name}.bias", module.bias.to(COMPUTE_DTYPES[precision]))


def add_norm(
    graph: Graph, value: onnx_ir.Value, module: nn.LayerNorm, name: str, precision: Precision = "fp32"
) -> onnx_ir.Value:
    """Add a LayerNorm of the last axis."""
    scale = graph.weight(f"{name}.weight", module.weight.to(COMPUTE_DTYPES[precision]))
    shift = add_bias(graph, module, name, precision)
    # ONNX Runtime's optimiser crashes at a shift that is named and absent.
    inputs = [value, scale] if shift is None else [value, scale, shift]
    return graph.op("LayerNormalization", *inputs, axis=-1, epsilon=module.eps)


def add_first(graph: Graph, value: onnx_ir.Value, axis: int = 1) -> onnx_ir.Value:
    """Add a slice of the first place along an axis, which stays with length 1."""
    return graph.op("Slice", value, graph.constant([0]), graph.constant([1]), graph.constant([axis]))


def add_activation(
    graph: Graph, value: onnx_ir.Value, bias: onnx_ir.Value | None, activation: Activation
) -> onnx_ir.Value:
    """Add an activation of a value and the bias, if there is one."""
    if activation == "relu":
        return graph.op("Relu", value if bias is None else graph.op("Add", value, bias))
    if bias is None:
        return graph.op("Gelu", value, approximate={"gelu": "none", "gelu_tanh": "tanh"}[activation])
    return graph.fused({"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}[activation], value, bias)


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
