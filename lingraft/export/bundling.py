"""Export of a bundle: the bodies of one task or of a primary, with the tables of many languages."""

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
"""Factors on the tolerance of self-tests, since a server's processor rounds differently from the exporter's.
fp16 differs most: a CPU computes every operator in float32 and rounds only its output."""
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
    """Export a task, or a primary itself, with its source language and all languages of `embeddings`.

    Args:
        primary: primary artifact, which holds the source language's table.
        task: finetuned task; None exports the primary's own body and deepest MLM head.
        embeddings: embeddings artifacts, one for each target language.
        out: folder of the bundle.
        precisions: precisions of the body; fp32 is always written.
        tables: number format of the tables.
        examples: rows of the task, or blocks (N, T) of token ids for a primary, by language; the metric of each
            precision is measured on them.
        prompts: texts for people who try the endpoint, by language and name of the input; if None, the examples of the
            recipe that the task was finetuned by.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: two inputs have the same language, the outputs of ONNX Runtime and PyTorch differ, or examples are
            of a language that is not exported.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    exported, languages, fingerprints = load_sources(primary, task, embeddings)
    require_examples(examples or {}, languages)
    exported_languages = [ExportedLanguage.from_artifact(source) for source in languages.values()]
    chosen = sort_precisions(precisions)
    with artifact.create(out, Kind.BUNDLE) as draft:
        write_bodies(draft, exported, chosen)
        for exported_language in exported_languages:
            write_language(draft, exported_language, exported, tables)
        found = {
            precision: compare_languages(
                folder=draft.folder,
                exported=exported,
                languages=exported_languages,
                precision=precision,
                table_format=tables,
                examples=examples or {},
            )
            for precision in chosen
        }
        tokenizers = {each.tokenizer.language: tokenizer_facts(each) for each in exported_languages}
        draft.facts = {
            "language": exported_languages[0].tokenizer.language,
            "aligned_with": fingerprints["primary"],
            "data_hashes": fingerprints,
            "details": body_facts(exported)
            | language_facts(tokenizers, found)
            | {"tables": tables, "examples": _recipe_examples(exported) if prompts is None else prompts},
            "record": {"parity": found},
        }
    return Artifact.load(out, Kind.BUNDLE)


def load_sources(
    primary: Path, task: Path | None, embeddings: Sequence[Path]
) -> tuple[ExportedModel, Languages, dict[str, str]]:
    """Load the model to export, its languages (the source language first), and the fingerprints of all inputs.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: two inputs have the same language.
        ArtifactError: an input is not what it should be.
    """
    source = load_primary(primary)
    languages = _by_language([source, *(load_embeddings(folder) for folder in embeddings)])
    fingerprints = {"primary": source.fingerprint}
    for language, vocabulary_source in languages.items():
        if isinstance(vocabulary_source, Embeddings):
            require_aligned(f"embeddings of {language!r}", vocabulary_source.aligned_with, source.fingerprint)
            fingerprints[f"embeddings-{language}"] = vocabulary_source.fingerprint
    if task is None:
        return ExportedModel.of_primary(source), languages, fingerprints
    model = load_task(task)
    model.swap_in(source)
    return ExportedModel.of_task(model), languages, fingerprints | {"task": model.fingerprint}


def _by_language(sources: Sequence[Primary | Embeddings]) -> Languages:
    names = [source.tokenizer.language for source in sources]
    if len(set(names)) < len(names):
        raise ExportError(f"languages {names} are not distinct. Give one embeddings artifact for each language.")
    return dict(zip(names, sources, strict=True))


def require_examples(examples: Mapping[str, Any], languages: Languages) -> None:
    """Refuse examples of a language that is not exported.

    Raises:
        ExportError: a language is not exported; the message lists those that are.
    """
    if unknown := sorted(set(examples) - set(languages)):
        raise ExportError(f"there are rows of {unknown} to judge, but the languages are {list(languages)}.")


def sort_precisions(precisions: Sequence[str]) -> list[Precision]:
    """Return the precisions in canonical order, fp32 first and always included, without duplicates.

    Raises:
        ExportError: a precision is unknown.
    """
    if unknown := sorted(set(precisions) - set(PRECISIONS)):
        raise ExportError(f"precisions {unknown} are unknown. Choose of {list(PRECISIONS)}.")
    return [precision for precision in PRECISIONS if precision in {"fp32", *precisions}]


def _recipe_examples(exported: ExportedModel) -> dict[str, dict[str, str]]:
    settings = exported.settings
    return {language: settings.asked(language) for language in settings.examples} if settings else {}


def body_facts(exported: ExportedModel) -> dict[str, Any]:
    """Return the details of the body for a bundle's manifest."""
    return {
        "task": exported.name,
        "kind": exported.kind,
        "labels": exported.labels,
        "metric": exported.metric,
        "settings": exported.settings.model_dump(mode="json") if exported.settings else None,
        "shape": exported.shape.model_dump(mode="json"),
    }


def language_facts(tokenizers: Mapping[str, Any], found: Mapping[Precision, Parity]) -> dict[str, Any]:
    """Return the details of the languages for a bundle's manifest, with the tolerance of self-tests by precision."""
    return {
        "languages": list(tokenizers),
        "tokenizers": dict(tokenizers),
        "precisions": list(found),
        "golden": {precision: _tolerance(precision, parity) for precision, parity in found.items()},
    }


def _tolerance(precision: Precision, parity: Parity) -> float:
    """Return the tolerance of self-tests: that of float32, or the precision's own difference if that is larger."""
    return _SELF_TEST_SLACK[precision] * max(PARITY_TOLERANCE, *(each["difference"] for each in parity.values()))
