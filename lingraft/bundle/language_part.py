"""A language's part of a bundle as an artifact of its own: table, tokenizer and golden answers, without a body.

It says by fingerprints which bodies it was made for; a server that has another one refuses it.
"""

from pathlib import Path
from typing import Any

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import PART_FIELDS, Artifact, Kind, Manifest
from lingraft.bundle.format import Precision, body_fingerprint, bundle_tokenizers
from lingraft.errors import PublicationError

BODY_FINGERPRINTS = "bodies"
"""Of the manifest's details: fingerprint of the body by precision."""
_VERSION_DIGITS = 16
TASK_DETAILS = ("task", "kind", "labels", "shape", "tables")
"""Of the manifest's details: what the bundle says of its task."""


def write_language_part(bundle: Artifact, language: str, out: Path) -> Artifact:
    """Write a language's part of a bundle; its files are hard links where the file system has them.

    Args:
        bundle: its files of this language have been verified.
        language: one of the bundle's.
        out: folder of the part.

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
    """A language's files in a bundle or in a part, with their hashes."""
    return {name: mark for name, mark in manifest.files.items() if name.startswith(f"{language}/")}


def language_fingerprint(manifest: Manifest, language: str) -> str:
    """Fingerprint of a language's part, which covers all that decides an answer in it; equal in bundle and part.

    Args:
        manifest: of a bundle, or of a part.
        language: one of the bundle's, or the part's.

    Raises:
        PublicationError: there is no such language.
        ArtifactError: the manifest is damaged.
    """
    known = bundle_tokenizers(manifest)
    if language not in known:
        raise PublicationError(f"the bundle has no language {language!r}, only {sorted(known)}. Name one of these.")
    return (manifest if manifest.kind is Kind.LANGUAGE else _part_of(manifest, language)).fingerprint


def language_version(manifest: Manifest, language: str) -> str:
    """Beginning of a part's fingerprint: the name of a published version.

    Raises:
        PublicationError: there is no such language.
        ArtifactError: the manifest is damaged.
    """
    return language_fingerprint(manifest, language)[:_VERSION_DIGITS]


def _part_of(manifest: Manifest, language: str) -> Manifest:
    """The manifest that `cut` writes."""
    of_parts = {
        name: {part: known for part, known in getattr(manifest, name).items() if part.startswith(f"{language}/")}
        for name in PART_FIELDS
    }
    return Manifest(
        kind=Kind.LANGUAGE, files=language_files(manifest, language), **of_parts, **_facts(manifest, language)
    )


def _facts(manifest: Manifest, language: str) -> dict[str, Any]:
    """Facts of a language's part; the caller has checked that the manifest describes the tokenizers."""
    details, embeddings = manifest.details, f"embeddings-{language}"
    precisions: list[Precision] = manifest.detail("precisions", list[Precision])
    return {
        "language": language,
        "aligned_with": manifest.aligned_with,
        "data_hashes": {name: mark for name, mark in manifest.data_hashes.items() if name in ("task", embeddings)},
        "details": {name: details.get(name) for name in TASK_DETAILS}
        | {
            "tokenizers": {language: details["tokenizers"][language]},
            BODY_FINGERPRINTS: {precision: body_fingerprint(manifest, precision) for precision in precisions},
        },
    }
