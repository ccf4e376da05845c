"""What a registered bundle says of its inputs and outputs is what the endpoint says of them."""

from pathlib import Path

import yaml
from mlflow.models import ModelSignature

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
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
            metadata(name, model, opened, ServingSettings())
            for name, model in served_models({opened.name: opened}).items()
        ]
        assert set(signature.inputs.input_names()) == {each["name"] for one in told for each in one["inputs"]}
        assert {(each.name, DATATYPES[each.type.name], each.shape) for each in signature.outputs} == {
            (each["name"], each["datatype"], tuple(each["shape"])) for one in told for each in one["outputs"]
        }
        kinds.add(opened.kind)
    assert kinds == {"documents", "pairs", "questions", "tags", "retrieval", "primary"}
