"""Graphs of the heads, which are float32 in every precision of the body: they are small, and logits depend on them.

Legend: B batch, T tokens, D width, C classes.
"""

from collections.abc import Mapping, Sequence

import onnx_ir
import torch
from torch import nn

from lingraft.bundle.format import FEATURES, HIDDEN
from lingraft.config.encoder import Activation
from lingraft.export.body import add_activation
from lingraft.export.graph import Graph
from lingraft.export.matrix_products import add_matmul
from lingraft.model.encoder import MlmHead
from lingraft.tasks.classification import Classifier

Outputs = Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]]
"""Outputs of a graph by name, with their shapes."""


def add_classifier(graph: Graph, net: Classifier, first_B1D: onnx_ir.Value) -> Outputs:
    """Add RoBERTa's classification head on the first token's state."""
    first_BD = graph.op("Squeeze", first_B1D, graph.constant([1]))
    features_BD = graph.op("Tanh", add_linear(graph, first_BD, net.dense, "dense"))
    return {"logits_BC": (add_linear(graph, features_BD, net.out, "out"), ["batch", net.out.out_features])}


def add_token_head(graph: Graph, out: nn.Linear, hidden_BTD: onnx_ir.Value, name: str) -> Outputs:
    """Add a linear layer at every token, for tags or for starts and ends of answers."""
    return {name: (add_linear(graph, hidden_BTD, out, "out"), ["batch", "tokens", out.out_features])}


def add_mlm_head(graph: Graph, head: MlmHead, name: str, activation: Activation, hidden_BTD: onnx_ir.Value) -> Outputs:
    """Add an MLM head up to the features whose products with a token table are logits; output hidden states too."""
    width = head.dense.out_features
    between = add_matmul(graph, hidden_BTD, f"{name}.dense.weight", head.dense.weight, "fp32")
    bias = graph.weight(f"{name}.dense.bias", head.dense.bias)
    norm_weight = graph.weight(f"{name}.norm.weight", head.norm.weight)
    norm_bias = graph.weight(f"{name}.norm.bias", head.norm.bias)
    between = add_activation(graph, between, bias, activation)
    features_BTD = graph.op("LayerNormalization", between, norm_weight, norm_bias, axis=-1, epsilon=head.norm.eps)
    # Not all runtimes accept an output that is also an input of other nodes.
    shape: Sequence[str | int] = ["batch", "tokens", width]
    return {HIDDEN: (graph.op("Identity", hidden_BTD), shape), FEATURES: (features_BTD, shape)}


def add_linear(graph: Graph, value: onnx_ir.Value, module: nn.Linear, name: str) -> onnx_ir.Value:
    """Add a linear layer in float32."""
    product = add_matmul(graph, value, f"{name}.weight", module.weight, "fp32")
    return graph.op("Add", product, graph.weight(f"{name}.bias", module.bias))


def to_float32(graph: Graph, hidden_BTD: onnx_ir.Value, dtype: torch.dtype) -> onnx_ir.Value:
    """Convert hidden states to float32, which heads expect."""
    return hidden_BTD if dtype == torch.float32 else graph.cast(hidden_BTD, torch.float32)
