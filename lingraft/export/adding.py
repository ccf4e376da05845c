"""Adding a language to an existing bundle."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind, require_aligned
from lingraft.bundle.format import BundleKind, Precision, TableFormat, body_part, bundle_languages
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY, Task
from lingraft.errors import ExportError
from lingraft.export.bundling import language_facts
from lingraft.export.exported_model import ExportedModel
from lingraft.export.language import ExportedLanguage, tokenizer_facts, write_language
from lingraft.export.parity import Parity, compare_languages
from lingraft.model.encoder import Encoder
from lingraft.model.loading import load_embeddings
from lingraft.tasks.loading import kind_of

_NOT_IN_BODY = ("vocabulary.", "heads.")
"""Prefixes of an encoder's parameters that a body does not hold; a primary's body holds only the deepest head."""


def add_to_bundle(bundle: Path, embeddings: Path, out: Path) -> Artifact:
    """Write a new bundle with one more language, or with other embeddings of a language that the bundle has.

    The new bundle is complete. Its bodies and other languages are hard links to the files of the first one. Since the
    bodies' fingerprints are equal, a server need not open them again.

    Args:
        bundle: folder of the existing bundle, which is not changed.
        embeddings: embeddings artifact of the language.
        out: folder of the new bundle.

    Raises:
        AlignmentError: the embeddings belong to another primary.
        ExportError: the outputs of ONNX Runtime and PyTorch differ.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    source = Artifact.load(bundle, Kind.BUNDLE)
    learned = load_embeddings(embeddings)
    manifest = source.manifest
    language = learned.language
    require_aligned(f"embeddings of {language!r}", learned.aligned_with, str(manifest.aligned_with))
    exported = _load_exported(source)
    added = ExportedLanguage.from_artifact(learned)
    tables = manifest.detail("tables", TableFormat)
    recorded = manifest.recorded("parity", dict[Precision, Parity])
    with artifact.create(out, Kind.BUNDLE) as draft:
        draft.share(source, [name for name in manifest.files if not name.startswith(f"{language}/")])
        write_language(draft, added, exported, tables)
        parity = {
            precision: recorded.get(precision, {})
            | compare_languages(
                folder=draft.folder,
                exported=exported,
                languages=[added],
                precision=precision,
                table_format=tables,
                examples={},
            )
            for precision in manifest.detail("precisions", list[Precision])
        }
        # Languages stay in the order in which they were added; a manifest sorts the keys of a mapping.
        facts = manifest.detail("tokenizers", dict[str, Any]) | {language: tokenizer_facts(added)}
        tokenizers = {name: facts[name] for name in dict.fromkeys([*bundle_languages(manifest), language])}
        draft.facts = {
            "language": manifest.language,
            "aligned_with": manifest.aligned_with,
            "data_hashes": manifest.data_hashes | {f"embeddings-{language}": learned.fingerprint},
            "details": manifest.details | language_facts(tokenizers, parity),
            "record": manifest.record | {"parity": parity},
        }
    return Artifact.load(out, Kind.BUNDLE)


def _load_exported(bundle: Artifact) -> ExportedModel:
    """Rebuild the PyTorch model from the fp32 body of a bundle."""
    manifest = bundle.manifest
    encoder = Encoder(manifest.detail("shape", EncoderShape), 0)
    if manifest.detail("kind", BundleKind) == PRIMARY:
        exported = ExportedModel(PRIMARY, PRIMARY, encoder.eval(), [], None)
    else:
        settings = manifest.detail("settings", Task)
        labels = manifest.detail("labels", list[str])
        net = kind_of(settings).net(encoder, labels)
        exported = ExportedModel(manifest.detail("task", str), settings.kind, net.eval(), labels, settings)
    _load_weights(exported.net, bundle.tensors(body_part("fp32")), bundle.folder)
    return exported


@torch.no_grad()
def _load_weights(net: nn.Module, weights: dict[str, Any], folder: Path) -> None:
    unplaced = set(weights)
    for path, module in net.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            key = f"{path}.{name}".removeprefix("encoder.").removeprefix(".")
            if key in weights:
                # ONNX stores a matrix as (inputs, outputs).
                transposed = isinstance(module, nn.Linear) and name == "weight"
                parameter.copy_(weights[key].T if transposed else weights[key])
                unplaced.discard(key)
            elif not key.startswith(_NOT_IN_BODY):
                unplaced.add(key)
    if unplaced:
        raise ExportError(f"the body of {folder} does not fit its shape: {sorted(unplaced)}. Export the bundle again.")
