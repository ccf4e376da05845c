"""The graph that ONNX Runtime runs: what is fused in it, and where its weights are."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from lingraft.bundle.format import PRECISIONS, Precision, body_file
from lingraft.config.encoder import Family
from lingraft.export import export_bundle as export
from tests.export.test_kinds import MODERN, in_family
from tests.tiny import Pieces, Tiny

LAYERS = 3
FUSED = {"MultiHeadAttention": LAYERS, "SkipLayerNormalization": 2 * LAYERS + 1}
UNFUSED = {"Softmax", "Erf", "Pow", "ReduceMean", "LayerNormalization", "Tanh", "Transpose"}


def optimised(model: Path, folder: Path) -> onnx_ir.Model:
    """What is left of a graph when ONNX Runtime has optimised it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return onnx_ir.load(folder / "optimised.onnx")


def counted(model: onnx_ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


@pytest.fixture(scope="module")
def precise(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("graphs") / "bundle"
    export(tiny.primary, tiny.task, [], out, PRECISIONS)
    return out


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_attention_gelu_and_layer_norms_are_fused(precise: Path, tmp_path: Path, precision: Precision) -> None:
    found = counted(optimised(precise / body_file(precision), tmp_path))
    assert {name: found[name] for name in FUSED} == FUSED
    assert found["BiasGelu"] == LAYERS
    assert not {name: found[name] for name in UNFUSED if found[name]}
    # Four products a layer, and two of the head, one of them fused with its tanh.
    products = {"fp32": ("MatMul", 4 * LAYERS), "int8": ("MatMulIntegerToFloat", 4 * LAYERS)}[precision]
    assert (found[products[0]], found["FusedGemm"], found["Gemm"]) == (products[1], 1, 1)


def test_the_graph_in_fp16_is_that_in_fp32_in_half_the_digits(precise: Path) -> None:
    whole, half = (onnx_ir.load(precise / body_file(precision)) for precision in ("fp32", "fp16"))
    assert counted(half) - counted(whole) == Counter({"Cast": 2})
    assert not counted(whole) - counted(half)
    layers = [value for name, value in half.graph.initializers.items() if name.startswith("layers.")]
    assert {value.const_value.dtype for value in layers if value.const_value} == {onnx_ir.DataType.FLOAT16}


def test_tanh_gelu_is_fused_too(pieces: Pieces, tmp_path: Path) -> None:
    _, tiny = in_family(pieces, Family(activation="gelu_tanh"))
    export(tiny.primary, tiny.task, [], tmp_path / "bundle")
    found = counted(optimised(tmp_path / "bundle" / "body.onnx", tmp_path))
    assert (found["FastGelu"], found["BiasGelu"]) == (LAYERS, 0)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_pre_norm_layers_are_of_fused_operators_too(pieces: Pieces, tmp_path: Path, pooling: str) -> None:
    assert MODERN.pre_norm
    pre_norm = MODERN.pre_norm.model_copy(update={"pooling": pooling})
    _, tiny = in_family(pieces, MODERN.model_copy(update={"pre_norm": pre_norm}))
    export(tiny.primary, tiny.task, [], tmp_path / "bundle")
    found = counted(optimised(tmp_path / "bundle" / "body.onnx", tmp_path))
    assert (found["MultiHeadAttention"], found["Gelu"]) == (LAYERS, LAYERS + 1)
    # The only query of the last layer is the first token's, which is not turned, where no other token is read.
    assert found["RotaryEmbedding"] == 2 * LAYERS - (pooling == "first")
    assert found["SkipLayerNormalization"] + found["LayerNormalization"] == 2 * LAYERS + 2
    assert (found["Cos"], found["Sin"], found["Where"]) == (2, 2, 1)
    assert not {name: found[name] for name in UNFUSED - {"LayerNormalization"} if found[name]}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_weight_is_in_the_graph_so_that_no_limit_of_protobuf_applies(precise: Path, precision: Precision) -> None:
    file = precise / body_file(precision)
    held = onnx_ir.load(file).graph.initializers.values()
    inside = [each.const_value for each in held if not isinstance(each.const_value, onnx_ir.ExternalTensor)]
    assert sum(np.prod(tensor.shape.numpy()) for tensor in inside if tensor) < 200
    outside = {each.const_value.location for each in held if isinstance(each.const_value, onnx_ir.ExternalTensor)}
    assert outside == {file.with_suffix(".safetensors").name}
    assert file.stat().st_size < 40_000


def test_the_last_layer_of_a_classifier_computes_the_first_token_alone(precise: Path) -> None:
    nodes = [*onnx_ir.load(precise / "body.onnx").graph.all_nodes()]
    queries = [node.inputs[0] for node in nodes if node.op_type == "MultiHeadAttention"]
    makers = [query.producer() for query in queries if query is not None]
    assert [maker.op_type for maker in makers if maker] == ["Split"] * (LAYERS - 1) + ["Slice"]
