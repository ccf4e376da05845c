"""`lingraft verify` checks that an artifact is what it should be: its hashes and its fingerprint."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.errors import ArtifactError

if TYPE_CHECKING:
    from lingraft.artifacts.artifact import Artifact

_SHOWN = 12
"""Names of a list that a summary has room for."""


def verify(
    artifact: Annotated[Path, typer.Argument(help="Folder of any artifact, also one that MLflow downloaded.")],
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Fingerprint that the artifact must have, such as the registry's tag of that name."),
    ] = None,
    whole: Annotated[bool, typer.Option("--json", help="Print fingerprints and the whole manifest as JSON.")] = False,
) -> None:
    """Check every file of an artifact against its manifest, and print a summary.

    Hashes find damage. To find edits of the manifest itself, give the fingerprint that it must have.
    """
    from lingraft.artifacts.artifact import Artifact
    from lingraft.artifacts.manifest import read_manifest

    found = Artifact.load(artifact, read_manifest(artifact).kind)
    if fingerprint is not None:
        if not re.fullmatch("[0-9a-f]{64}", fingerprint):
            raise ArtifactError(
                f"--fingerprint {fingerprint!r} is no whole fingerprint, which has 64 digits of 0-9 and a-f; fewer "
                "could be forged. `lingraft registry show MODEL VERSION` prints that of a registered version."
            )
        found.require_fingerprint(fingerprint)
    if whole:
        marks = {"fingerprint": found.fingerprint, "fingerprints": _by_language(found)}
        print(json.dumps(marks | {"manifest": found.manifest.model_dump(mode="json")}, indent=2, ensure_ascii=False))
        return
    checked = ", of the fingerprint expected" if fingerprint else ""
    print(f"{found.folder} is whole{checked}")
    for name, value in _summary(found):
        print(f"  {name:<14} {value}")


def _by_language(found: "Artifact") -> dict[str, str]:
    from lingraft.artifacts.manifest import Kind
    from lingraft.bundle.format import bundle_tokenizers
    from lingraft.bundle.language_part import language_fingerprint

    if found.manifest.kind is not Kind.BUNDLE:
        return {}
    return {language: language_fingerprint(found.manifest, language) for language in bundle_tokenizers(found.manifest)}


def _summary(found: "Artifact") -> Iterator[tuple[str, str]]:
    manifest = found.manifest
    yield "kind", f"{manifest.kind}" + (f" of {manifest.language!r}" if manifest.language else "")
    yield "fingerprint", found.fingerprint
    for name in ("aligned_with", "tokenizer_hash"):
        if value := getattr(manifest, name):
            yield name, value
    for name in ("task", "labels", "languages", "precisions"):
        if value := manifest.details.get(name):
            yield name, _shortened(value)
    size = sum((found.folder / name).stat().st_size for name in manifest.file_names)
    yield "files", f"{len(manifest.file_names)}, {size:,} bytes"
    yield (
        "made by",
        f"lingraft {manifest.library_version}"
        + (f", in {manifest.cost.steps:,} updates" if manifest.cost.steps else ""),
    )


def _shortened(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    more = f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
    return ", ".join(map(str, value[:_SHOWN])) + more
