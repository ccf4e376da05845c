"""Export of a bundle, the bodies of one task or of a primary with the tables of many languages; adding a language.

Legend: N vectors, E width of a vector.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import (
    BIAS,
    PRECISIONS,
    BundleKind,
    Precision,
    TableFormat,
    bias_part,
    body_part,
    bundle_languages,
    bundle_tokenizers,
    table_part,
)
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.encoder import EncoderShape
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.config.tasks import PRIMARY, Task
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ExportError
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.export.language import ExportedLanguage, restored_table, write_language
from lingraft.export.parity import Parity, compare_languages
from lingraft.model.encoder import BorrowedRows, Encoder
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary
from lingraft.tasks.finetuned import load_task, own_task
from lingraft.tasks.kinds import kind_of

_SELF_TEST_SLACK: dict[Precision, float] = {"fp32": 2.0, "fp16": 4.0, "int8": 2.0}
"""Factors on the tolerance of self-tests, since a server's processor rounds differently from the exporter's.
fp16 differs most: a CPU computes every operator in float32 and rounds only its output."""
_NOT_IN_BODY = ("vocabulary.", "heads.", "final_norms.")
"""Prefixes of an encoder's parameters that a body may lack: it holds what is at the deepest layer alone."""


def export_bundle(
    primary: Path,
    task: Path | None,
    embeddings: Sequence[Path],
    out: Path,
    precisions: Sequence[Precision] = ("fp32",),
    tables: TableFormat = "float32",
    examples: Mapping[str, Any] | None = None,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
) -> Artifact:
    """Export a task, or a primary itself, with its source language and all languages of `embeddings`.

    A primary fills masks by its MLM head; one that is an embedding model makes its vectors.

    fp32 is always written. The metric of each precision is measured on `examples`: rows of the task, or blocks (N, T)
    for a primary, by language. `prompts` are texts for people who try the endpoint, by language and input; those of the
    task's recipe if None.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
    """
    installed_runtime()
    exported, sources, fingerprints = load_sources(primary, task, embeddings)
    if unknown := sorted(set(examples or {}) - set(sources)):
        raise ExportError(f"there are rows of {unknown} to judge, but the languages are {list(sources)}.")
    if examples and task is None and exported.task:
        raise ExportError("an embedding model is judged on examples of a task. Give --task, or leave --judge out.")
    if prompts is None:
        settings = exported.settings
        prompts = {language: settings.asked(language) for language in settings.examples} if settings else {}
    own, *targets = sources.values()
    first = ExportedLanguage.from_artifact(own, tables)
    languages = [first, *(ExportedLanguage.from_artifact(target, tables, first) for target in targets)]
    chosen = sort_precisions(precisions)
    with artifact.create(out, Kind.BUNDLE) as draft:
        write_bodies(draft, exported, chosen)
        for language in languages:
            write_language(draft, language, exported)
        parity = {
            precision: compare_languages(draft.folder, exported, languages, precision, examples) for precision in chosen
        }
        draft.facts = {
            "language": languages[0].tag,
            "aligned_with": fingerprints["primary"],
            "data_hashes": fingerprints,
            "details": body_facts(exported)
            | language_facts({each.tag: each.tokenizer_facts() for each in languages}, parity)
            | {"tables": tables, "examples": prompts},
            "record": {"parity": parity},
        }
    return Artifact.load(out, Kind.BUNDLE)


def load_sources(
    primary: Path, task: Path | None, embeddings: Sequence[Path]
) -> tuple[ExportedModel, dict[str, LoadedPrimary | Embeddings], dict[str, str]]:
    """Load the model to export, its languages (the source language first), and the fingerprints of all inputs."""
    source = load_primary(primary)
    targets = [load_embeddings(folder) for folder in embeddings]
    sources: list[LoadedPrimary | Embeddings] = [source, *targets]
    names = [each.tokenizer.language for each in sources]
    if len(set(names)) < len(names):
        raise ExportError(f"languages {names} are not distinct. Give one embeddings artifact for each language.")
    fingerprints = {"primary": source.fingerprint}
    for target in targets:
        source.lend_to(target)
        fingerprints[f"embeddings-{target.language}"] = target.fingerprint
    languages = dict(zip(names, sources, strict=True))
    model = load_task(task) if task else own_task(source)
    if model is None and source.encoder.depths:
        return ExportedModel.of_primary(source), languages, fingerprints
    if model is None:
        raise ExportError(
            f"the primary {primary} has no MLM head, and so cannot fill masks. Export a task of it (--task)."
        )
    model.swap_in(source)
    return ExportedModel.of_task(model), languages, fingerprints | {"task": model.fingerprint}


def sort_precisions(precisions: Sequence[str]) -> list[Precision]:
    """Return the precisions in canonical order, fp32 first and always included, without duplicates."""
    if unknown := sorted(set(precisions) - set(PRECISIONS)):
        raise ExportError(f"precisions {unknown} are unknown. Choose of {list(PRECISIONS)}.")
    return [precision for precision in PRECISIONS if precision in {"fp32", *precisions}]


def body_facts(exported: ExportedModel) -> dict[str, Any]:
    """Return the details of the body for a bundle's manifest."""
    return {
        "task": exported.name,
        "kind": exported.kind,
        "labels": exported.labels,
        "metric": exported.task.metric if exported.task else "masked accuracy",
        "settings": exported.settings.model_dump(mode="json") if exported.settings else None,
        "shape": exported.shape.model_dump(mode="json"),
    }


def language_facts(tokenizers: Mapping[str, Any], parity: Mapping[Precision, Parity]) -> dict[str, Any]:
    """Return the details of the languages for a bundle's manifest.

    `golden` is the tolerance of self-tests by precision: float32's, or the precision's own difference if larger.
    """
    return {
        "languages": list(tokenizers),
        "tokenizers": dict(tokenizers),
        "precisions": list(parity),
        "golden": {
            precision: _SELF_TEST_SLACK[precision]
            * max(PARITY_TOLERANCE, *(each["difference"] for each in by_language.values()))
            for precision, by_language in parity.items()
        },
    }


def add_to_bundle(bundle: Path, embeddings: Path, out: Path) -> Artifact:
    """Write a new bundle with one more language, or with other embeddings of a language that the bundle has.

    The new bundle is complete. Its bodies and other languages are hard links to the files of the first one. Since the
    bodies' fingerprints are equal, a server need not open them again.
    """
    installed_runtime()
    source = Artifact.load(bundle, Kind.BUNDLE)
    manifest = source.manifest
    learned = load_embeddings(embeddings)
    require_aligned(f"embeddings of {learned.language!r}", learned.aligned_with, str(manifest.aligned_with))
    exported = _load_exported(source)
    lender = _lender_in(source, learned) if learned.tokenizer.lender else None
    added = ExportedLanguage.from_artifact(learned, manifest.detail("tables", TableFormat), lender)
    recorded = manifest.recorded("parity", dict[Precision, Parity])
    with artifact.create(out, Kind.BUNDLE) as draft:
        draft.share(source, [name for name in manifest.files if not name.startswith(f"{added.tag}/")])
        write_language(draft, added, exported)
        parity = {
            precision: recorded.get(precision, {}) | compare_languages(draft.folder, exported, [added], precision)
            for precision in manifest.detail("precisions", list[Precision])
        }
        # Languages stay in the order in which they were added; a manifest sorts the keys of a mapping.
        facts = manifest.detail("tokenizers", dict[str, Any]) | {added.tag: added.tokenizer_facts()}
        tokenizers = {tag: facts[tag] for tag in dict.fromkeys([*bundle_languages(manifest), added.tag])}
        draft.facts = {
            "language": manifest.language,
            "aligned_with": manifest.aligned_with,
            "data_hashes": manifest.data_hashes | {f"embeddings-{added.tag}": learned.fingerprint},
            "details": manifest.details | language_facts(tokenizers, parity),
            "record": manifest.record | {"parity": parity},
        }
    return Artifact.load(out, Kind.BUNDLE)


def _lender_in(bundle: Artifact, learned: Embeddings) -> ExportedLanguage:
    """Return the source language of a bundle as it is stored, whose rows learned embeddings then refer to."""
    tag, kind = str(bundle.manifest.language), bundle.manifest.detail("kind", BundleKind)
    described = bundle_tokenizers(bundle.manifest)[tag]
    tokenizer = Tokenizer.from_file(bundle.folder / tag / described.file, tag, described.special_ids)
    learned.tokenizer.require_lender(tokenizer)
    table_SD = restored_table(bundle.tensors(table_part(tag)))
    bias_S = bundle.tensors(bias_part(tag))[BIAS] if kind == PRIMARY else torch.zeros(len(table_SD))
    vocabulary = make_vocabulary(table_SD, bias_S, tokenizer.special)
    learned.vocabulary.borrowed = BorrowedRows(torch.from_numpy(learned.tokenizer.borrowed_B), vocabulary)
    return ExportedLanguage(vocabulary, tokenizer, "float32")


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
