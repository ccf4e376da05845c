"""What a registered bundle says of its inputs and outputs is what the endpoint says of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow.models import ModelSignature

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Task
from lingraft.serving.bundle import Bundle
from lingraft.serving.served_models import metadata, served_models
from lingraft.serving.settings import ServingSettings
from lingraft.tracking.signature import mlmodel_of

DATATYPES = {"str": "BYTES", "float32": "FP32", "int32": "INT32", "int8": "INT8", "uint8": "UINT8", "bool": "BOOL"}


def test_a_bundle_of_every_kind_is_described_as_it_answers(bundles: list[Path]) -> None:
    kinds = set()
    for folder in bundles:
        said = yaml.safe_load(mlmodel_of(Artifact.load(folder, Kind.BUNDLE).manifest, "m-1"))["signature"]
        signature, opened = ModelSignature.from_dict(said), Bundle.load(folder)
        told = [
            metadata(name, model, ServingSettings()) for name, model in served_models({opened.name: opened}).items()
        ]
        assert set(signature.inputs.input_names()) == {each["name"] for one in told for each in one["inputs"]}
        assert {(each.name, DATATYPES[each.type.name], each.shape) for each in signature.outputs} == {
            (each["name"], each["datatype"], tuple(each["shape"])) for one in told for each in one["outputs"]
        }
        kinds.add(opened.kind)
    assert kinds == {"documents", "pairs", "questions", "tags", "retrieval", "primary"}


FILES = {split: {"kind": "file", "path": f"{split}.tsv"} for split in ("train", "dev", "test")}
DENSE = {"layers": [{"kind": "dense", "width": 7}, {"kind": "normalise"}]}


@pytest.mark.parametrize(
    ("settings", "name", "shape"),
    [
        ({"kind": "pairs"}, "logits", (-1, 3)),
        ({"kind": "tags"}, "logits", (-1, -1, 3)),
        ({"kind": "tags", "evaluation": "words"}, "logits", (-1, -1, 3)),
        ({"kind": "retrieval"}, "vectors", (-1, 32)),
        ({"kind": "retrieval", "retrieval": DENSE}, "vectors", (-1, 7)),
    ],
)
def test_a_task_is_described_by_its_kind(settings: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    task = Task.model_validate({"name": "some", **FILES, **settings})
    encoder = EncoderShape(width=32, layers=1, attention_heads=1, mlm_heads=(1,), block_tokens=16)
    details = {
        "settings": task.model_dump(mode="json"),
        "labels": ["a", "b", "c"] if task.has_labels else [],
        "shape": encoder.model_dump(mode="json"),
    }
    manifest = Manifest(kind=Kind.TASK, details=details)
    [output] = ModelSignature.from_dict(yaml.safe_load(mlmodel_of(manifest, "m-1"))["signature"]).outputs
    assert (output.name, output.shape) == (name, shape)
