"""Bundles: bodies of one task or of a primary, with the tables of many languages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind, require_aligned
from lingraft.bundle.format import PRECISIONS, Precision, TableFormat
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.errors import ExportError
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.export.language import ExportedLanguage, tokenizer_facts, write_language
from lingraft.export.parity import Parity, compare_languages
from lingraft.model.loading import Embeddings, Primary, load_embeddings, load_primary
from lingraft.tasks.model import load_task

_SELF_TEST_SLACK: dict[Precision, float] = {"fp32": 2.0, "fp16": 4.0, "int8": 2.0}
"""A server's processor rounds elsewhere than the exporter's. Most of all in fp16: a CPU computes every operator in
float32 and rounds only what comes out."""
Languages = dict[str, Primary | Embeddings]


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
    """Export a task, or a primary itself, with the source language and all languages given.

    Args:
        primary: brings the source language's table.
        task: the finetuned body; the primary's own body and deepest MLM head if None.
        embeddings: one artifact a language.
        out: folder of the bundle.
        precisions: of the body; fp32 is written in any case.
        tables: number format of the tables.
        examples: by language, what each precision is judged on by the metric: rows of the task; of a primary, blocks
            (N, T) of token ids.
        prompts: by language, texts by the names of the endpoint's inputs, for people who try the endpoint; if absent,
            the examples of the recipe that the task was finetuned by.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: two of the inputs are of one language, ONNX Runtime computes something else than PyTorch, or
            examples are of a language that is not exported.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    exported, languages, marks = load_sources(primary, task, embeddings)
    require_examples(examples or {}, languages)
    brought, chosen = [*map(ExportedLanguage.from_artifact, languages.values())], sort_precisions(precisions)
    with artifact.create(out, Kind.BUNDLE) as draft:
        write_bodies(draft, exported, chosen)
        for one in brought:
            write_language(draft, one, exported, tables)
        found = {
            precision: compare_languages(draft.folder, exported, brought, precision, tables, examples or {})
            for precision in chosen
        }
        tokenizers = {one.tokenizer.language: tokenizer_facts(one) for one in brought}
        draft.facts = {
            "language": brought[0].tokenizer.language,
            "aligned_with": marks["primary"],
            "data_hashes": marks,
            "details": body_facts(exported)
            | language_facts(tokenizers, found)
            | {"tables": tables, "examples": _recipe_examples(exported) if prompts is None else prompts},
            "record": {"parity": found},
        }
    return Artifact.load(out, Kind.BUNDLE)


def load_sources(
    primary: Path, task: Path | None, embeddings: Sequence[Path]
) -> tuple[ExportedModel, Languages, dict[str, str]]:
    """What is exported, its languages (the source's first), and the fingerprints of all inputs.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: two of the inputs are of one language.
        ArtifactError: an input is not what it should be.
    """
    source = load_primary(primary)
    languages = _by_language([source, *(load_embeddings(folder) for folder in embeddings)])
    marks = {"primary": source.fingerprint}
    for language, one in languages.items():
        if isinstance(one, Embeddings):
            require_aligned(f"embeddings of {one.language!r}", one.aligned_with, source.fingerprint)
            marks[f"embeddings-{language}"] = one.fingerprint
    if task is None:
        return ExportedModel.of_primary(source), languages, marks
    model = load_task(task)
    model.swap_in(source)
    return ExportedModel.of_task(model), languages, marks | {"task": model.fingerprint}


def _by_language(brought: Sequence[Primary | Embeddings]) -> Languages:
    names = [one.tokenizer.language for one in brought]
    if len(set(names)) < len(names):
        raise ExportError(f"languages {names} are not distinct. Give one embeddings artifact for each language.")
    return dict(zip(names, brought, strict=True))


def require_examples(examples: Mapping[str, Any], languages: Languages) -> None:
    """Refuse rows of a language that is not exported.

    Raises:
        ExportError: the message lists the languages that are.
    """
    if strange := sorted(set(examples) - set(languages)):
        raise ExportError(f"there are rows of {strange} to judge, but the languages are {list(languages)}.")


def sort_precisions(precisions: Sequence[str]) -> list[Precision]:
    """Each one once, fp32 first.

    Raises:
        ExportError: one is unknown.
    """
    if unknown := sorted(set(precisions) - set(PRECISIONS)):
        raise ExportError(f"precisions {unknown} are unknown. Choose of {list(PRECISIONS)}.")
    return [precision for precision in PRECISIONS if precision in {"fp32", *precisions}]


def _recipe_examples(exported: ExportedModel) -> dict[str, dict[str, str]]:
    settings = exported.settings
    return {language: settings.asked(language) for language in settings.examples} if settings else {}


def body_facts(exported: ExportedModel) -> dict[str, Any]:
    """What a manifest says of the body."""
    return {
        "task": exported.name,
        "kind": exported.kind,
        "labels": exported.labels,
        "metric": exported.metric,
        "settings": exported.settings.model_dump(mode="json") if exported.settings else None,
        "shape": exported.shape.model_dump(mode="json"),
    }


def language_facts(tokenizers: Mapping[str, Any], found: Mapping[Precision, Parity]) -> dict[str, Any]:
    """Details of a bundle's languages, and how far golden answers may be missed in each precision."""
    return {
        "languages": list(tokenizers),
        "tokenizers": dict(tokenizers),
        "precisions": list(found),
        "golden": {precision: _tolerance(precision, parity) for precision, parity in found.items()},
    }


def _tolerance(precision: Precision, parity: Parity) -> float:
    """How far a server may miss golden answers: what float32 may, and more where the precision itself misses more."""
    return _SELF_TEST_SLACK[precision] * max(PARITY_TOLERANCE, *(each["difference"] for each in parity.values()))
