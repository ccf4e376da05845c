"""A language's part of a bundle as an artifact of its own: table, tokenizer and golden answers, without a body.

It says by fingerprints which bodies it was made for; a server that has another one refuses it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from lingraft import artifact
from lingraft.artifact import Artifact, Kind, Manifest
from lingraft.errors import PublicationError
from lingraft.serving.formats import body_part

BODIES = "bodies"
"""Of the manifest's details: fingerprint of the body by precision."""
_VERSION_DIGITS = 16
_OF_TASK = ("task", "kind", "labels", "shape", "tables")


def cut(bundle: Artifact, language: str, out: Path) -> Artifact:
    """Write a language's part of a bundle; its files are hard links where the file system has them.

    Args:
        bundle: its files of this language have been verified.
        language: one of the bundle's.
        out: folder of the part.

    Raises:
        ArtifactError: `out` cannot be written, or what was written is not what the bundle's manifest says.
    """
    with artifact.create(out, Kind.LANGUAGE) as draft:
        draft.share(bundle, files_of(bundle.manifest, language))
        draft.facts = _facts(bundle.manifest, language)
    return Artifact.load(out, Kind.LANGUAGE)


def files_of(manifest: Manifest, language: str) -> dict[str, str]:
    """A language's files in a bundle or in a part, with their hashes."""
    return {name: mark for name, mark in manifest.files.items() if name.startswith(f"{language}/")}


def version_of(manifest: Manifest, language: str) -> str:
    """What a language is called in this state: a digest of all its files, equal in a bundle and in its part.

    Raises:
        PublicationError: the bundle does not have the language.
    """
    if language not in manifest.details.get("tokenizers", {}):
        known = sorted(manifest.details.get("tokenizers", {}))
        raise PublicationError(f"the bundle has no language {language!r}, only {known}. Name one of these.")
    content = [files_of(manifest, language), manifest.details["tokenizers"][language]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_VERSION_DIGITS]


def _facts(manifest: Manifest, language: str) -> dict[str, Any]:
    details = manifest.details
    embeddings = f"embeddings-{language}"
    return {
        "language": language,
        "aligned_with": manifest.aligned_with,
        "data_hashes": {name: mark for name, mark in manifest.data_hashes.items() if name in ("task", embeddings)},
        "details": {name: details[name] for name in _OF_TASK}
        | {
            "tokenizers": {language: details["tokenizers"][language]},
            BODIES: {precision: manifest.fingerprints[body_part(precision)] for precision in details["precisions"]},
        },
    }
