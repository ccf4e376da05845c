"""Graphs of heads, which are float32 in every precision of the body: they are small, and logits depend on them.

Legend: B batch, T tokens, D width, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir
import torch
from torch import nn

from lingraft.bundle.format import FEATURES, HIDDEN
from lingraft.config.encoder import EncoderShape
from lingraft.export.graph_builder import Graph
from lingraft.export.operators import add_activation, add_bias, add_linear, add_matmul, add_norm
from lingraft.model.encoder import MlmHead
from lingraft.tasks.classification import Classifier

Outputs = Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]]
"""Outputs of a graph by name, with their shapes."""


def add_classifier(graph: Graph, net: Classifier, hidden_BTD: onnx_ir.Value, visible_BT: onnx_ir.Value) -> Outputs:
    """Add the head of texts on the mean of the visible tokens' states, or on a first token's that is alone."""
    tokens = graph.constant([1])
    if net.encoder.shape.pools_mean:
        visible_BT1 = graph.op("Unsqueeze", graph.cast(visible_BT, torch.float32), graph.constant([2]))
        sum_BD = graph.op("ReduceSum", graph.op("Mul", hidden_BTD, visible_BT1), tokens, keepdims=0)
        pooled_BD = graph.op("Div", sum_BD, graph.op("ReduceSum", visible_BT1, tokens, keepdims=0))
    else:
        pooled_BD = graph.op("Squeeze", hidden_BTD, tokens)
    features_BD = _add_features(graph, net, "", net.encoder.shape, pooled_BD)
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
