"""A language's part of a bundle: its files and its fingerprint."""

from typing import Any

from lingraft.artifacts.manifest import PART_FIELDS, Kind, Manifest
from lingraft.bundle.format import Precision, body_fingerprint, bundle_tokenizers
from lingraft.errors import ArtifactError

_TASK_DETAILS = ("task", "kind", "labels", "shape", "tables")
"""Keys of the manifest's details that describe the task."""


def language_files(manifest: Manifest, language: str) -> dict[str, str]:
    """Return the hashes of a language's files in a bundle, by name."""
    return {name: file_hash for name, file_hash in manifest.files.items() if name.startswith(f"{language}/")}


def language_fingerprint(manifest: Manifest, language: str) -> str:
    """Return the fingerprint of a language's part, which covers everything that an answer in it depends on."""
    languages = bundle_tokenizers(manifest)
    if language not in languages:
        raise ArtifactError(f"the bundle has no language {language!r}, only {sorted(languages)}. Name one of these.")
    return _part_of(manifest, language).fingerprint


def _part_of(manifest: Manifest, language: str) -> Manifest:
    """Return the manifest of a part, whose fingerprint covers it."""
    of_parts = {
        name: {part: known for part, known in getattr(manifest, name).items() if part.startswith(f"{language}/")}
        for name in PART_FIELDS
    }
    return Manifest(
        kind=Kind.LANGUAGE, files=language_files(manifest, language), **of_parts, **_facts(manifest, language)
    )


def _facts(manifest: Manifest, language: str) -> dict[str, Any]:
    """Return the facts of a part's manifest; the caller has checked that the bundle's describes the tokenizers."""
    details = manifest.details
    embeddings = f"embeddings-{language}"
    precisions: list[Precision] = manifest.detail("precisions", list[Precision])
    return {
        "language": language,
        "aligned_with": manifest.aligned_with,
        "data_hashes": {
            name: data_hash for name, data_hash in manifest.data_hashes.items() if name in ("task", embeddings)
        },
        "details": {name: details.get(name) for name in _TASK_DETAILS}
        | {
            "tokenizers": {language: details["tokenizers"][language]},
            "bodies": {precision: body_fingerprint(manifest, precision) for precision in precisions},
        },
    }
