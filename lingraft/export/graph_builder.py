"""ONNX graphs that are built node by node; their weights are stored in files beside them.

Legend: I inputs and O outputs of a matrix.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import torch
from onnx_ir.tape import Tape
from torch import Tensor

from lingraft.artifacts.tensor_file import tensor_spans

OPSET = 20
IR_VERSION = 10
FUSED = "com.microsoft"
"""Domain of ONNX Runtime's own operators, which all of its builds have."""
_TYPES = {
    torch.float32: onnx_ir.DataType.FLOAT,
    torch.float16: onnx_ir.DataType.FLOAT16,
    torch.int8: onnx_ir.DataType.INT8,
    torch.int64: onnx_ir.DataType.INT64,
    torch.bool: onnx_ir.DataType.BOOL,
}


class Graph:
    """Builder of an ONNX graph."""

    def __init__(self, part: str) -> None:
        """Begin a graph whose weights go into a part of the artifact, unless `weight` names another."""
        self._part = part
        self.parts: dict[str, dict[str, Tensor]] = {}
        """Weights by part of the artifact and name."""
        self._tape = Tape()
        self._inputs: list[onnx_ir.Value] = []
        self._weights: dict[tuple[str, str], onnx_ir.Value] = {}
        self._constants: list[onnx_ir.Value] = []

    def input(self, name: str, dtype: torch.dtype, shape: Sequence[str | int]) -> onnx_ir.Value:
        """Add an input; strings in its shape are sizes that may differ between calls."""
        value = onnx_ir.Value(name=name, type=onnx_ir.TensorType(_TYPES[dtype]), shape=onnx_ir.Shape(shape))
        self._inputs.append(value)
        return value

    def weight(self, name: str, tensor: Tensor, part: str | None = None) -> onnx_ir.Value:
        """Add a tensor that is stored in a file; names are unique within a graph."""
        part = part or self._part
        self.parts.setdefault(part, {})[name] = tensor.detach()
        value = onnx_ir.Value(
            name=name, type=onnx_ir.TensorType(_TYPES[tensor.dtype]), shape=onnx_ir.Shape(tensor.shape)
        )
        self._weights[part, name] = value
        return value

    def constant(self, values: Any, dtype: type[np.generic] = np.int64) -> onnx_ir.Value:
        """Add a small tensor that is stored in the graph itself."""
        tensor = onnx_ir.tensor(np.array(values, dtype), name=f"constant_{len(self._constants)}")
        self._constants.append(onnx_ir.Value(name=tensor.name, const_value=tensor))
        return self._constants[-1]

    def op(self, kind: str, *inputs: onnx_ir.Value | None, domain: str = "", **attributes: Any) -> onnx_ir.Value:
        """Add a node with one output, and return the output."""
        return self._tape.op(kind, inputs, attributes, domain=domain)

    def fused(self, kind: str, *inputs: onnx_ir.Value | None, **attributes: Any) -> onnx_ir.Value:
        """Add a node of one of ONNX Runtime's own operators, and return its output."""
        return self.op(kind, *inputs, domain=FUSED, **attributes)

    def split(self, value: onnx_ir.Value, count: int) -> Sequence[onnx_ir.Value]:
        """Split a tensor into equal parts along its last axis."""
        attributes = {"axis": -1, "num_outputs": count}
        return self._tape.op_multi_out("Split", [value], attributes, num_outputs=count)

    def cast(self, value: onnx_ir.Value, dtype: torch.dtype) -> onnx_ir.Value:
        """Convert a tensor to another number format."""
        return self.op("Cast", value, to=_TYPES[dtype])

    def save(
        self,
        file: Path,
        outputs: Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]],
        facts: Mapping[str, str],
    ) -> None:
        """Write the graph; its parts must have been written as `<part>.safetensors` into the same folder."""
        for part in self.parts:
            self._point_into(file.parent, part)
        for name, (value, shape) in outputs.items():
            value.name = name
            value.shape = onnx_ir.Shape(shape)
            value.type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
        graph = onnx_ir.Graph(
            self._inputs,
            [value for value, _ in outputs.values()],
            nodes=self._tape.nodes,
            initializers=[*self._weights.values(), *self._constants],
            opset_imports={"": OPSET, FUSED: 1},
            name=file.stem,
        )
        onnx_ir.save(
            onnx_ir.Model(graph, ir_version=IR_VERSION, producer_name="lingraft", metadata_props={**facts}), file
        )

    def _point_into(self, folder: Path, part: str) -> None:
        weights_file = f"{part}.safetensors"
        for name, span in tensor_spans(folder / weights_file).items():
            value = self._weights[part, name]
            assert value.shape is not None
            assert value.dtype is not None
            value.const_value = onnx_ir.ExternalTensor(
                weights_file, span.offset, span.nbytes, value.dtype, shape=value.shape, name=name, base_dir=folder
            )
