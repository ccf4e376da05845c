"""Signatures of artifacts for MLflow: the file `MLmodel` with inputs and outputs, which MLflow's pages show.

`MLmodel` names no flavour, so MLflow itself does not load our artifacts: `lingraft registry pull` downloads them.
"""

from typing import Any

import numpy as np
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.bundle.format import OUTPUTS, ROW_OUTPUTS, VECTORS, BundleKind, OutputSizes
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import DenseLayer, Retrieval, TaskKindName

FILE = "MLmodel"
_TOKENS = TensorSpec(np.dtype(np.int64), (-1, -1), "tokens")
_VISIBLE = TensorSpec(np.dtype(np.bool_), (-1, -1), "visible")
_FLOAT = np.dtype(np.float32)
_DATATYPES = {
    "BYTES": np.str_,
    "FP32": np.float32,
    "INT32": np.int32,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}


def mlmodel_of(manifest: Manifest, model_id: str) -> str:
    """Return the text of an artifact's file `MLmodel`, which is the same for the same artifact."""
    made = Model(
        signature=_signature(manifest),
        model_uuid=model_id,
        model_id=model_id,
        utc_time_created="",
        metadata={"kind": str(manifest.kind), "library": "lingraft", "library_version": manifest.library_version},
    )
    return str(made.to_yaml())


def _signature(manifest: Manifest) -> ModelSignature:
    """Return inputs and outputs of an artifact; shapes begin with (texts, tokens)."""
    if manifest.kind is Kind.BUNDLE:
        return _bundle_signature(manifest)
    width = manifest.detail("shape", EncoderShape).width if "shape" in manifest.details else -1
    inputs: list[ColSpec | TensorSpec] = [_TOKENS]
    output = TensorSpec(_FLOAT, (-1, -1, width), "hidden_states")
    if manifest.kind is Kind.EMBEDDINGS:
        widths = [shapes["table_VD"][-1] for shapes in manifest.shapes.values() if "table_VD" in shapes]
        output = TensorSpec(_FLOAT, (-1, -1, widths[0] if widths else -1), "vectors")
    if manifest.kind is Kind.TASK:
        inputs.append(_VISIBLE)
        output = _task_output(manifest, width)
    return ModelSignature(Schema(inputs), Schema([output]))


def _task_output(manifest: Manifest, width: int) -> TensorSpec:
    """Return classes of a text, tags of a token, start and end of an answer, which has no labels, or a vector."""
    task = manifest.detail("settings", dict[str, Any])
    labels = manifest.detail("labels", list[str]) if "labels" in manifest.details else []
    kind: TaskKindName = task["kind"]
    [name] = OUTPUTS[kind]
    if name == VECTORS:
        retrieval = Retrieval.model_validate(task.get("retrieval") or {})
        dense = [layer.width for layer in retrieval.layers if isinstance(layer, DenseLayer)]
        return TensorSpec(_FLOAT, (-1, [width, *dense][-1]), "vectors")
    return TensorSpec(_FLOAT, (-1, len(labels)) if name in ROW_OUTPUTS else (-1, -1, len(labels) or 2), "logits")


def _bundle_signature(manifest: Manifest) -> ModelSignature:
    """Return inputs and outputs of the endpoint by the Open Inference Protocol."""
    from lingraft.serving.served_models import interface  # it brings PyTorch, and few steps register bundles

    inputs, outputs = interface(manifest.detail("kind", BundleKind), OutputSizes.of(manifest))
    return ModelSignature(
        Schema([ColSpec(DataType.string, name) for name in inputs]),
        Schema([TensorSpec(np.dtype(_DATATYPES[each.datatype]), tuple(each.shape), each.name) for each in outputs]),
    )
