"""Graphs of heads, which are float32 in every precision of the body: they are small, and logits depend on them.

Legend: B batch, T tokens, D width, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir
from torch import nn

from lingraft.bundle.format import FEATURES, HIDDEN
from lingraft.config.encoder import EncoderShape
from lingraft.export.graph_builder import Graph
from lingraft.export.operators import add_activation, add_bias, add_linear, add_matmul, add_norm
from lingraft.model.encoder import MlmHead
from lingraft.tasks.classification import Classifier

Outputs = Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]]
"""Outputs of a graph by name, with their shapes."""


def add_classifier(graph: Graph, net: Classifier, first_B1D: onnx_ir.Value) -> Outputs:
    """Add the head of texts on the first token's state."""
    first_BD = graph.op("Squeeze", first_B1D, graph.constant([1]))
    features_BD = _add_features(graph, net, "", net.encoder.shape, first_BD)
    return {"logits_BC": (add_linear(graph, features_BD, net.out, "out"), ["batch", net.out.out_features])}


def add_token_head(graph: Graph, net: Any, hidden_BTD: onnx_ir.Value, name: str) -> Outputs:
    """Add the head of a `TaskNet` at every token, for tags or for starts and ends of answers."""
    features_BTD = _add_features(graph, net, "", net.encoder.shape, hidden_BTD)
    return {name: (add_linear(graph, features_BTD, net.out, "out"), ["batch", "tokens", net.out.out_features])}


def add_mlm_head(graph: Graph, head: MlmHead, name: str, shape: EncoderShape, hidden_BTD: onnx_ir.Value) -> Outputs:
    """Add an MLM head up to the features whose products with a token table are logits; output hidden states too."""
    features_BTD = _add_features(graph, head, f"{name}.", shape, hidden_BTD)
    # Not all runtimes accept an output that is also an input of other nodes.
    size: Sequence[str | int] = ["batch", "tokens", shape.width]
    return {HIDDEN: (graph.op("Identity", hidden_BTD), size), FEATURES: (features_BTD, size)}


def _add_features(
    graph: Graph, head: nn.Module, prefix: str, shape: EncoderShape, value: onnx_ir.Value
) -> onnx_ir.Value:
    """Add the layers of a head below its projection (`lingraft.model.heads`)."""
    dense, norm = head.dense, head.norm
    if not isinstance(dense, nn.Linear):
        return value
    if not isinstance(norm, nn.LayerNorm):  # RoBERTa's head of texts
        return graph.op("Tanh", add_linear(graph, value, dense, f"{prefix}dense"))
    product = add_matmul(graph, value, f"{prefix}dense.weight", dense.weight, "fp32")
    bias = add_bias(graph, dense, f"{prefix}dense")
    activated = add_activation(graph, product, bias, shape.family.head_activation)
    return add_norm(graph, activated, norm, f"{prefix}norm")
