"""Export of a task and its languages as one ONNX bundle, checked against PyTorch.

The body is written once and takes rows of a token table as input, so that a language is a table beside it. Graphs are
built node by node from ONNX Runtime's fused operators. Weights are stored once, in safetensors files that the graphs
refer to: they have one fingerprint, and protobuf's limit of 2 GB does not apply.
"""

from lingraft.errors import MissingExtraError

try:
    import onnx_ir  # noqa: F401  every module here needs it, and the first one imported should say which extra has it
except ImportError as error:
    raise MissingExtraError("onnx-ir", "export") from error

from lingraft.export.bundling import add_to_bundle, export_bundle, sort_precisions
from lingraft.export.parity import evaluation_examples, measure_parity
from lingraft.export.standalone import export_standalone

__all__ = [
    "add_to_bundle",
    "evaluation_examples",
    "export_bundle",
    "export_standalone",
    "measure_parity",
    "sort_precisions",
]
