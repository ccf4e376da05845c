"""Graphs of heads, which are float32 in every precision of the body: they are small, and logits depend on them.

Legend: B batch, T tokens, D width, C classes, E width of a vector.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np
import onnx_ir
import torch
from torch import nn

from lingraft.bundle.format import FEATURES, HIDDEN, VECTORS
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import NormaliseLayer
from lingraft.export.graph_builder import Graph
from lingraft.export.operators import add_activation, add_bias, add_linear, add_matmul, add_norm
from lingraft.model.encoder import MlmHead
from lingraft.tasks.classification import Classifier
from lingraft.tasks.retrieval import TextEmbedder

Outputs = Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]]
"""Outputs of a graph by name, with their shapes."""
_SHORTEST_LENGTH = 1e-12
"""Lower limit of a vector's length, as in PyTorch's `normalize`."""


def add_classifier(graph: Graph, net: Classifier, hidden_BTD: onnx_ir.Value, visible_BT: onnx_ir.Value) -> Outputs:
    """Add the head of texts on the mean of the visible tokens' states, or on a first token's that is alone."""
    if net.encoder.shape.pools_mean:
        pooled_BD = _add_mean(graph, hidden_BTD, visible_BT)
    else:
        pooled_BD = graph.op("Squeeze", hidden_BTD, graph.constant([1]))
    features_BD = _add_features(graph, net, "", net.encoder.shape, pooled_BD)
    return {"logits_BC": (add_linear(graph, features_BD, net.out, "out"), ["batch", net.width])}


def add_vector_layers(graph: Graph, net: TextEmbedder, hidden_BTD: onnx_ir.Value, visible_BT: onnx_ir.Value) -> Outputs:
    """Add pooling, of a first token's state that is alone if it is of the first, and the layers above it."""
    match net.settings.pooling:
        case "mean":
            vectors_BE = _add_mean(graph, hidden_BTD, visible_BT)
        case "first":
            vectors_BE = graph.op("Squeeze", hidden_BTD, graph.constant([1]))
        case "last":
            vectors_BE = _add_last(graph, hidden_BTD, visible_BT)
        case unknown:
            assert_never(unknown)
    for number, layer in enumerate(net.settings.layers):
        if isinstance(layer, NormaliseLayer):
            last = graph.constant([-1])
            length_B1 = graph.op("ReduceL2", vectors_BE, last)
            shortest = graph.constant(_SHORTEST_LENGTH, np.float32)
            vectors_BE = graph.op("Div", vectors_BE, graph.op("Max", length_B1, shortest))
        else:
            dense = net.get_submodule(name := f"layers.{number}.0")
            assert isinstance(dense, nn.Linear)
            # ONNX has operators of the same names.
            vectors_BE = graph.op(layer.activation.capitalize(), add_linear(graph, vectors_BE, dense, name))
    return {VECTORS: (vectors_BE, ["batch", net.width])}


def add_token_head(graph: Graph, net: Any, hidden_BTD: onnx_ir.Value, name: str) -> Outputs:
    """Add the head of a `TaskNet` at every token, for tags or for starts and ends of answers."""
    features_BTD = _add_features(graph, net, "", net.encoder.shape, hidden_BTD)
    return {name: (add_linear(graph, features_BTD, net.out, "out"), ["batch", "tokens", net.width])}


def add_mlm_head(graph: Graph, head: MlmHead, name: str, shape: EncoderShape, hidden_BTD: onnx_ir.Value) -> Outputs:
    """Add an MLM head up to the features whose products with a token table are logits; output hidden states too."""
    features_BTD = _add_features(graph, head, f"{name}.", shape, hidden_BTD)
    # Not all runtimes accept an output that is also an input of other nodes.
    size: Sequence[str | int] = ["batch", "tokens", shape.width]
    return {HIDDEN: (graph.op("Identity", hidden_BTD), size), FEATURES: (features_BTD, size)}


def _add_mean(graph: Graph, hidden_BTD: onnx_ir.Value, visible_BT: onnx_ir.Value) -> onnx_ir.Value:
    """Add the mean (B, D) of the visible tokens' states."""
    tokens = graph.constant([1])
    visible_BT1 = graph.op("Unsqueeze", graph.cast(visible_BT, torch.float32), graph.constant([2]))
    sum_BD = graph.op("ReduceSum", graph.op("Mul", hidden_BTD, visible_BT1), tokens, keepdims=0)
    return graph.op("Div", sum_BD, graph.op("ReduceSum", visible_BT1, tokens, keepdims=0))


def _add_last(graph: Graph, hidden_BTD: onnx_ir.Value, visible_BT: onnx_ir.Value) -> onnx_ir.Value:
    """Add the state (B, D) of the last visible token."""
    lengths_B1 = graph.op("ReduceSum", graph.cast(visible_BT, torch.int64), graph.constant([1]), keepdims=1)
    return graph.op("GatherND", hidden_BTD, graph.op("Sub", lengths_B1, graph.constant(1)), batch_dims=1)


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
