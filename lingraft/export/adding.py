"""Another language for a bundle that is there."""

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
"""Of an encoder, what a task's body does not hold; of a primary's heads it holds the deepest."""


def add_to_bundle(bundle: Path, embeddings: Path, out: Path) -> Artifact:
    """Write a bundle with one language more, or with other embeddings of one that it has.

    It is whole, and shares the files of the bodies and of the other languages with the first one by hard links; equal
    fingerprints of the body tell a server that it need not open the body again.

    Args:
        bundle: stays as it is.
        embeddings: of the language.
        out: folder of the new bundle.

    Raises:
        AlignmentError: the embeddings belong to another primary.
        ExportError: ONNX Runtime computes something else than PyTorch.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    found, learned = Artifact.load(bundle, Kind.BUNDLE), load_embeddings(embeddings)
    manifest, language = found.manifest, learned.language
    require_aligned(f"embeddings of {language!r}", learned.aligned_with, str(manifest.aligned_with))
    exported, brought, details = _load_exported(found), ExportedLanguage.from_artifact(learned), manifest.details
    tables, before = manifest.detail("tables", TableFormat), manifest.recorded("parity", dict[Precision, Parity])
    with artifact.create(out, Kind.BUNDLE) as draft:
        draft.share(found, [name for name in manifest.files if not name.startswith(f"{language}/")])
        write_language(draft, brought, exported, tables)
        parity = {
            precision: before.get(precision, {})
            | compare_languages(draft.folder, exported, [brought], precision, tables, {})
            for precision in manifest.detail("precisions", list[Precision])
        }
        # In the order in which languages came; a manifest sorts the names of a mapping.
        facts = manifest.detail("tokenizers", dict[str, Any]) | {language: tokenizer_facts(brought)}
        tokenizers = {name: facts[name] for name in dict.fromkeys([*bundle_languages(manifest), language])}
        draft.facts = {
            "language": manifest.language,
            "aligned_with": manifest.aligned_with,
            "data_hashes": manifest.data_hashes | {f"embeddings-{language}": learned.fingerprint},
            "details": details | language_facts(tokenizers, parity),
            "record": manifest.record | {"parity": parity},
        }
    return Artifact.load(out, Kind.BUNDLE)


def _load_exported(bundle: Artifact) -> ExportedModel:
    """The PyTorch model whose weights a bundle holds."""
    manifest = bundle.manifest
    encoder = Encoder(manifest.detail("shape", EncoderShape), 0)
    if manifest.detail("kind", BundleKind) == PRIMARY:
        exported = ExportedModel(PRIMARY, PRIMARY, encoder.eval(), [], None)
    else:
        settings, labels = manifest.detail("settings", Task), manifest.detail("labels", list[str])
        net = kind_of(settings).net(encoder, labels)
        exported = ExportedModel(manifest.detail("task", str), settings.kind, net.eval(), labels, settings)
    _load_weights(exported.net, bundle.tensors(body_part("fp32")), bundle.folder)
    return exported


@torch.no_grad()
def _load_weights(net: nn.Module, weights: dict[str, Any], folder: Path) -> None:
    left = set(weights)
    for path, module in net.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            key = f"{path}.{name}".removeprefix("encoder.").removeprefix(".")
            if key in weights:
                # ONNX has the inputs of a matrix before its outputs.
                transposed = isinstance(module, nn.Linear) and name == "weight"
                parameter.copy_(weights[key].T if transposed else weights[key])
                left.discard(key)
            elif not key.startswith(_NOT_IN_BODY):
                left.add(key)
    if left:
        raise ExportError(f"the body of {folder} does not fit its shape: {sorted(left)}. Export the bundle again.")
