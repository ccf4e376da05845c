"""Signatures of artifacts for MLflow: the file `MLmodel` with inputs and outputs, which MLflow's pages show.

`MLmodel` names no flavour, so MLflow itself does not load our artifacts: `lingraft registry pull` downloads them.
"""

import numpy as np
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from lingraft.artifacts.artifact import Kind, Manifest
from lingraft.bundle.format import BundleKind
from lingraft.config.encoder import EncoderShape

FILE = "MLmodel"
_TOKENS = TensorSpec(np.dtype(np.int64), (-1, -1), "tokens")
_VISIBLE = TensorSpec(np.dtype(np.bool_), (-1, -1), "visible")
_DATATYPES = {"BYTES": np.str_, "FP32": np.float32, "INT32": np.int32, "BOOL": np.bool_}


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
    width = manifest.detail("shape", EncoderShape).width if "shape" in manifest.details else -1
    labels = manifest.detail("labels", list[str]) if "labels" in manifest.details else []
    if manifest.kind is Kind.BUNDLE:
        return _bundle_signature(manifest.detail("kind", BundleKind), len(labels), width)
    if manifest.kind is Kind.EMBEDDINGS:
        tables = [shapes["table_VD"] for shapes in manifest.shapes.values() if "table_VD" in shapes]
        return _tensor_signature([_TOKENS], "vectors", (-1, -1, tables[0][-1] if tables else -1))
    if manifest.kind is Kind.TASK:
        return _tensor_signature(
            [_TOKENS, _VISIBLE], "logits", _task_shape(str(manifest.details.get("metric")), len(labels))
        )
    return _tensor_signature([_TOKENS], "hidden_states", (-1, -1, width))


def _task_shape(metric: str, labels: int) -> tuple[int, ...]:
    """Return the shape of logits: classes of a text, tags of a token, or start and end of an answer if unlabelled."""
    if metric == "accuracy":
        return (-1, labels)
    return (-1, -1, labels or 2)


def _tensor_signature(inputs: list[ColSpec | TensorSpec], name: str, shape: tuple[int, ...]) -> ModelSignature:
    return ModelSignature(Schema(inputs), Schema([TensorSpec(np.dtype(np.float32), shape, name)]))


def _bundle_signature(kind: BundleKind, labels: int, width: int) -> ModelSignature:
    """Return inputs and outputs of the endpoint by the Open Inference Protocol."""
    from lingraft.serving.models import interface  # it brings PyTorch, and few steps register bundles

    inputs, outputs = interface(kind, labels, width)
    taken: list[ColSpec | TensorSpec] = [ColSpec(DataType.string, name) for name in inputs]
    given: list[ColSpec | TensorSpec] = [
        TensorSpec(np.dtype(_DATATYPES[each.datatype]), tuple(each.shape), each.name) for each in outputs
    ]
    return ModelSignature(Schema(taken), Schema(given))
