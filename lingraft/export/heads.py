"""Graphs of the heads, in float32 whatever the body's precision: they are small, and answers are made of them.

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
"""Values by name, with their shapes."""


def add_classifier(graph: Graph, net: Classifier, first_B1D: onnx_ir.Value) -> Outputs:
    """RoBERTa's head on the first token's state."""
    first_BD = graph.op("Squeeze", first_B1D, graph.constant([1]))
    features_BD = graph.op("Tanh", add_linear(graph, first_BD, net.dense, "dense"))
    return {"logits_BC": (add_linear(graph, features_BD, net.out, "out"), ["batch", net.out.out_features])}


def add_token_head(graph: Graph, out: nn.Linear, hidden_BTD: onnx_ir.Value, name: str) -> Outputs:
    """A linear layer at every token: tags, or starts and ends of answers."""
    return {name: (add_linear(graph, hidden_BTD, out, "out"), ["batch", "tokens", out.out_features])}


def add_mlm_head(graph: Graph, head: MlmHead, name: str, activation: Activation, hidden_BTD: onnx_ir.Value) -> Outputs:
    """The last layer's states, and what a table makes logits of."""
    width = head.dense.out_features
    between = add_matmul(graph, hidden_BTD, f"{name}.dense.weight", head.dense.weight, "fp32")
    bias = graph.weight(f"{name}.dense.bias", head.dense.bias)
    norm = graph.weight(f"{name}.norm.weight", head.norm.weight), graph.weight(f"{name}.norm.bias", head.norm.bias)
    between = add_activation(graph, between, bias, activation)
    features_BTD = graph.op("LayerNormalization", between, *norm, axis=-1, epsilon=head.norm.eps)
    # An input of other nodes cannot be an output of the same name in all runtimes.
    shape: Sequence[str | int] = ["batch", "tokens", width]
    return {HIDDEN: (graph.op("Identity", hidden_BTD), shape), FEATURES: (features_BTD, shape)}


def add_linear(graph: Graph, value: onnx_ir.Value, module: nn.Linear, name: str) -> onnx_ir.Value:
    """A linear layer in float32."""
    found = add_matmul(graph, value, f"{name}.weight", module.weight, "fp32")
    return graph.op("Add", found, graph.weight(f"{name}.bias", module.bias))


def to_float32(graph: Graph, hidden_BTD: onnx_ir.Value, dtype: torch.dtype) -> onnx_ir.Value:
    """States as heads take them."""
    return hidden_BTD if dtype == torch.float32 else graph.cast(hidden_BTD, torch.float32)
