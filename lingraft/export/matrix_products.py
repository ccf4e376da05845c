"""Matrix products with a body's weights, in the precision of the body.

int8 has one scale for each output channel of a weight and, found while it runs, for each token: what a token comes to
then does not depend on the texts that share its batch, as it would with the one scale for a whole tensor of
DynamicQuantizeMatMul. Weights keep to 7 bits, -63 to 63, since processors without VNNI add pairs of products in 16
bits, which 8 bits overflow: an answer is not to depend on the machine.

Legend: I inputs and O outputs of a matrix.
"""

import numpy as np
import onnx_ir
import torch
from torch import Tensor

from lingraft.bundle.format import Precision
from lingraft.export.graph import Graph

COMPUTE_DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "int8": torch.float32}
"""Number format of everything in a body but its matrix products."""
_WEIGHT_MAX, _TOKEN_MAX, _ZERO_POINT = 63, 127, 128
_SMALLEST_MAXIMUM = 1e-12
"""Keeps rows of zeros from being divided by zero."""


def add_matmul(graph: Graph, value: onnx_ir.Value, name: str, weight_OI: Tensor, precision: Precision) -> onnx_ir.Value:
    """Product of a tensor's last axis with a weight, which is stored as ONNX has it, (I, O)."""
    if precision == "int8":
        return _add_int8_matmul(graph, value, name, weight_OI)
    return graph.op("MatMul", value, graph.weight(name, weight_OI.T.to(COMPUTE_DTYPES[precision])))


def quantise(weight_IO: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values (I, O) and the scales (O) that give a weight back."""
    scale_O = weight_IO.abs().amax(0).clamp(min=_SMALLEST_MAXIMUM) / _WEIGHT_MAX
    return (weight_IO / scale_O).round().to(torch.int8), scale_O


def _add_int8_matmul(graph: Graph, value: onnx_ir.Value, name: str, weight_OI: Tensor) -> onnx_ir.Value:
    stored_IO, scale_O = quantise(weight_OI.T.float())
    largest = _add_token_maximum(graph, value)
    step, zero = graph.constant(1 / _TOKEN_MAX, np.float32), graph.constant(_ZERO_POINT, np.uint8)
    whole = graph.op("QuantizeLinear", graph.op("Div", value, largest), step, zero)
    weights = graph.weight(f"{name}.int8", stored_IO), graph.weight(f"{name}.scale", scale_O)
    weight, scale = weights
    return graph.op("Mul", graph.fused("MatMulIntegerToFloat", whole, weight, step, scale, zero), largest)


def _add_token_maximum(graph: Graph, value: onnx_ir.Value) -> onnx_ir.Value:
    """Largest absolute value of each token; two reductions read less than an absolute value writes."""
    last = graph.constant([-1])
    highest, lowest = graph.op("ReduceMax", value, last), graph.op("ReduceMin", value, last)
    return graph.op("Max", highest, graph.op("Neg", lowest), graph.constant(_SMALLEST_MAXIMUM, np.float32))
