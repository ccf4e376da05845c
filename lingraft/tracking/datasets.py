"""The inputs of a run as MLflow datasets: names, fingerprints and sources, never a line of the text itself.

An input has one name and one digest in all runs of an experiment, so MLflow's pages lead from a dataset to every run
that has used it.
"""

import json
from collections.abc import Iterator
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from lingraft.artifacts.manifest import Kind, Manifest

_DIGEST_CHARACTERS = 36
"""MLflow's limit for a digest; the source holds the whole fingerprint."""
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
    """Return the inputs of an artifact, tagged with their use; the source of documents is that of the recipe."""
    tags = [InputTag(MLFLOW_DATASET_CONTEXT, _CONTEXTS.get(manifest.kind, "training"))]
    return [DatasetInput(dataset, tags) for dataset in _datasets(manifest)]


def _datasets(manifest: Manifest) -> Iterator[Dataset]:
    for what, fingerprint in _direct_inputs(manifest).items():
        name = f"{what}-{manifest.language}" if what in _PER_LANGUAGE and manifest.language else what
        source: dict[str, Any] = {"fingerprint": fingerprint}
        kind = "lingraft"
        profile = None
        if what == _DOCUMENTS:
            kind, origin = _origin(manifest)
            source |= origin
            profile = json.dumps({name: manifest.details.get(name) for name in ("documents", "characters")})
        yield Dataset(name, fingerprint[:_DIGEST_CHARACTERS], kind, json.dumps(source), profile=profile)


def _direct_inputs(manifest: Manifest) -> dict[str, str]:
    """Return the fingerprints of the artifact's direct inputs, without the inputs of those."""
    indirect = set() if manifest.kind is Kind.TEXT else {_DOCUMENTS}
    if "blocks" in manifest.data_hashes and manifest.kind is not Kind.EVALUATION:
        indirect.add("text")
    return {what: fingerprint for what, fingerprint in manifest.data_hashes.items() if what not in indirect}


def _origin(manifest: Manifest) -> tuple[str, dict[str, Any]]:
    """Return the type and the location of a text's source, named as MLflow's pages know them where they do."""
    text: dict[str, Any] = manifest.recipe.get("text", {})
    language = str(manifest.language)
    if text.get("kind") == "huggingface":
        name = text.get("names", {}).get(language, language)
        path = str(text["dataset"]).replace("{language}", name)
        return "hugging_face", {"path": path, "revision": text.get("revision"), "split": text.get("split")}
    places = text.get("paths", {}).get(language) or text.get("path")
    return str(text.get("kind", "lingraft")), {"uri": places} if places else {}
