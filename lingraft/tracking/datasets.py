"""What a run was made from, as MLflow's datasets: names, fingerprints and places, never a line of the text itself.

An input has one name and one digest in all runs of an experiment. MLflow's pages thus lead from a dataset to every run
that has used it.
"""

import json
from collections.abc import Iterator
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from lingraft.artifacts.artifact import Kind, Manifest

_DIGEST_CHARACTERS = 36
"""What MLflow has room for; the whole fingerprint is in the source."""
_CONTEXTS = {
    Kind.TEXT: "preparation",
    Kind.TOKENIZER: "preparation",
    Kind.BLOCKS: "preparation",
    Kind.VECTORS: "preparation",
    Kind.EVALUATION: "evaluation",
    Kind.BUNDLE: "export",
}
_DOCUMENTS = "documents"
"""The raw text, before it becomes an artifact."""
_PER_LANGUAGE = {_DOCUMENTS, "text", "blocks", "initial", "examples"}


def inputs_of(manifest: Manifest) -> list[DatasetInput]:
    """The inputs of an artifact, with what each was used for; documents lead to where the recipe has them from."""
    tags = [InputTag(MLFLOW_DATASET_CONTEXT, _CONTEXTS.get(manifest.kind, "training"))]
    return [DatasetInput(dataset, tags) for dataset in _datasets(manifest)]


def _datasets(manifest: Manifest) -> Iterator[Dataset]:
    for what, fingerprint in _direct_inputs(manifest).items():
        name = f"{what}-{manifest.language}" if what in _PER_LANGUAGE and manifest.language else what
        source: dict[str, Any] = {"fingerprint": fingerprint}
        kind, profile = "lingraft", None
        if what == _DOCUMENTS:
            kind, origin = _origin(manifest)
            source |= origin
            profile = json.dumps({name: manifest.details.get(name) for name in ("documents", "characters")})
        yield Dataset(name, fingerprint[:_DIGEST_CHARACTERS], kind, json.dumps(source), profile=profile)


def _direct_inputs(manifest: Manifest) -> dict[str, str]:
    """Fingerprints of what an artifact was made from itself, without what these inputs were made from."""
    indirect = set() if manifest.kind is Kind.TEXT else {_DOCUMENTS}
    if "blocks" in manifest.data_hashes and manifest.kind is not Kind.EVALUATION:
        indirect.add("text")
    return {what: mark for what, mark in manifest.data_hashes.items() if what not in indirect}


def _origin(manifest: Manifest) -> tuple[str, dict[str, Any]]:
    """Type and place of a text's source, by the names that MLflow's pages know where there are some."""
    text: dict[str, Any] = manifest.recipe.get("text", {})
    language = str(manifest.language)
    if text.get("kind") == "huggingface":
        name = text.get("names", {}).get(language, language)
        path = str(text["dataset"]).replace("{language}", name)
        return "hugging_face", {"path": path, "revision": text.get("revision"), "split": text.get("split")}
    places = text.get("paths", {}).get(language) or text.get("path")
    return str(text.get("kind", "lingraft")), {"uri": places} if places else {}
