"""A language's part of a bundle as an artifact of its own: table, tokenizer and self-test, without a body.

Its manifest holds the fingerprints of the bodies that it was exported with; a server with another body refuses it.
"""

from pathlib import Path
from typing import Any

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import PART_FIELDS, Kind, Manifest
from lingraft.bundle.format import Precision, body_fingerprint, bundle_tokenizers
from lingraft.errors import PublicationError

BODY_FINGERPRINTS = "bodies"
"""Key of the manifest's details: fingerprints of the bodies, by precision."""
VERSION_DIGITS = 16
"""Length of the beginning of a part's fingerprint that names a published version."""
TASK_DETAILS = ("task", "kind", "labels", "shape", "tables")
"""Keys of the manifest's details that describe the task."""


def write_language_part(bundle: Artifact, language: str, out: Path) -> Artifact:
    """Write a language's part of a bundle as an artifact; files are hard links where the file system supports them.

    Raises:
        ArtifactError: `out` cannot be written, or the bundle's manifest is damaged.
        PublicationError: the bundle does not have the language.
    """
    language_fingerprint(bundle.manifest, language)
    with artifact.create(out, Kind.LANGUAGE) as draft:
        draft.share(bundle, language_files(bundle.manifest, language))
        draft.facts = _facts(bundle.manifest, language)
    return Artifact.load(out, Kind.LANGUAGE)


def language_files(manifest: Manifest, language: str) -> dict[str, str]:
    """Return the hashes of a language's files, by name, in a bundle or in a part."""
    return {name: file_hash for name, file_hash in manifest.files.items() if name.startswith(f"{language}/")}


def language_fingerprint(manifest: Manifest, language: str) -> str:
    """Return the fingerprint of a language's part, which covers everything that an answer in it depends on.

    The bundle's manifest and the part's give the same fingerprint.

    Raises:
        PublicationError: there is no such language.
        ArtifactError: the manifest is damaged.
    """
    languages = bundle_tokenizers(manifest)
    if language not in languages:
        raise PublicationError(f"the bundle has no language {language!r}, only {sorted(languages)}. Name one of these.")
    return (manifest if manifest.kind is Kind.LANGUAGE else _part_of(manifest, language)).fingerprint


def language_version(manifest: Manifest, language: str) -> str:
    """Return the beginning of a part's fingerprint, which names a published version.

    Raises:
        PublicationError: there is no such language.
        ArtifactError: the manifest is damaged.
    """
    return language_fingerprint(manifest, language)[:VERSION_DIGITS]


def _part_of(manifest: Manifest, language: str) -> Manifest:
    """Return the manifest that `write_language_part` writes."""
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
        "details": {name: details.get(name) for name in TASK_DETAILS}
        | {
            "tokenizers": {language: details["tokenizers"][language]},
            BODY_FINGERPRINTS: {precision: body_fingerprint(manifest, precision) for precision in precisions},
        },
    }
