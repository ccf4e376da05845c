"""Writing an ONNX graph node by node; weights go into files beside it.

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

OPSET, IR_VERSION = 20, 10
FUSED = "com.microsoft"
"""Domain of the operators that every build of ONNX Runtime has beside the standard's."""
_TYPES = {
    torch.float32: onnx_ir.DataType.FLOAT,
    torch.float16: onnx_ir.DataType.FLOAT16,
    torch.int8: onnx_ir.DataType.INT8,
    torch.int64: onnx_ir.DataType.INT64,
    torch.bool: onnx_ir.DataType.BOOL,
}


class Graph:
    """A graph in the making."""

    def __init__(self, part: str) -> None:
        """Begin one whose weights go into a part, where nothing else is said."""
        self._part = part
        self.parts: dict[str, dict[str, Tensor]] = {}
        """Weights by name, by the part of the artifact that they go into."""
        self._tape = Tape()
        self._inputs: list[onnx_ir.Value] = []
        self._weights: dict[tuple[str, str], onnx_ir.Value] = {}
        self._constants: list[onnx_ir.Value] = []

    def input(self, name: str, dtype: torch.dtype, shape: Sequence[str | int]) -> onnx_ir.Value:
        """An input; words in its shape are sizes that may change from call to call."""
        value = onnx_ir.Value(name=name, type=onnx_ir.TensorType(_TYPES[dtype]), shape=onnx_ir.Shape(shape))
        self._inputs.append(value)
        return value

    def weight(self, name: str, tensor: Tensor, part: str | None = None) -> onnx_ir.Value:
        """A tensor that goes into a file; names differ within a graph."""
        part = part or self._part
        self.parts.setdefault(part, {})[name] = tensor.detach()
        value = onnx_ir.Value(
            name=name, type=onnx_ir.TensorType(_TYPES[tensor.dtype]), shape=onnx_ir.Shape(tensor.shape)
        )
        self._weights[part, name] = value
        return value

    def constant(self, values: Any, dtype: type[np.generic] = np.int64) -> onnx_ir.Value:
        """A small tensor that stays in the graph."""
        tensor = onnx_ir.tensor(np.array(values, dtype), name=f"constant_{len(self._constants)}")
        self._constants.append(onnx_ir.Value(name=tensor.name, const_value=tensor))
        return self._constants[-1]

    def op(self, kind: str, *inputs: onnx_ir.Value | None, domain: str = "", **attributes: Any) -> onnx_ir.Value:
        """The only output of a node."""
        return self._tape.op(kind, inputs, attributes, domain=domain)

    def fused(self, kind: str, *inputs: onnx_ir.Value | None, **attributes: Any) -> onnx_ir.Value:
        """The output of one of ONNX Runtime's own operators."""
        return self.op(kind, *inputs, domain=FUSED, **attributes)

    def split(self, value: onnx_ir.Value, count: int) -> Sequence[onnx_ir.Value]:
        """A tensor cut along its last axis into equal parts."""
        attributes = {"axis": -1, "num_outputs": count}
        return self._tape.op_multi_out("Split", [value], attributes, num_outputs=count)

    def cast(self, value: onnx_ir.Value, dtype: torch.dtype) -> onnx_ir.Value:
        """Values in another number format."""
        return self.op("Cast", value, to=_TYPES[dtype])

    def save(
        self,
        file: Path,
        outputs: Mapping[str, tuple[onnx_ir.Value, Sequence[str | int]]],
        facts: Mapping[str, str],
    ) -> None:
        """Write the graph, once its parts lie as `<part>.safetensors` in the folder that the graph goes into.

        Args:
            file: of the graph.
            outputs: by name, with their shapes; float32.
            facts: metadata that runtimes show.
        """
        for part in self.parts:
            self._point_into(file.parent, part)
        for name, (value, shape) in outputs.items():
            value.name, value.shape = name, onnx_ir.Shape(shape)
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
        held = f"{part}.safetensors"
        for name, span in tensor_spans(folder / held).items():
            value = self._weights[part, name]
            assert value.shape is not None
            assert value.dtype is not None
            value.const_value = onnx_ir.ExternalTensor(
                held, span.offset, span.nbytes, value.dtype, shape=value.shape, name=name, base_dir=folder
            )
