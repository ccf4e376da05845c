"""Artifacts that are made once: an output is made unless it was made from the same before.

A file beside each output, `<out>.made-from.json`, has its provenance: settings, and the fingerprints of inputs. An
output of another provenance is refused. A damaged output is renamed, and made again.

`LINGRAFT_RESULTS` names a folder or URI where results are shared by all runs and pods. Each result has a folder there,
named after the hash of its whole provenance, code included:

    <kind>-<key>/result                   the output
                 result.made-from.json    its provenance
                 result.training/         checkpoints, until the result is complete
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of, write_json
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import MANIFEST, Kind, artifact_fingerprint, json_fingerprint
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.artifacts.sync import RESULTS_VARIABLE, shared_cache_dir
from lingraft.console import say
from lingraft.errors import ArtifactError

IMAGE_VARIABLE = "LINGRAFT_IMAGE"
"""Environment variable: image of a step, by its digest where it has one."""
_ABSENT = "nothing"
_KEY_ENDING = ".made-from.json"
RESULT = "result"
"""Name of the output in the folder of a shared result."""
_DECISIVE_PACKAGES = ("torch", "sentencepiece", "transformers")
"""Packages whose version may change an artifact."""


class ProvenanceMismatchError(ArtifactError):
    """An output exists that was made from other settings or inputs."""


@contextlib.contextmanager
def cached(made: Path, kind: Kind, provenance: Mapping[str, Any]) -> Iterator[Artifact | None]:
    """Hold an output, and yield its artifact if it was made from the same before; None if it is to be made now.

    Processes that make the same wait for each other.

    Args:
        provenance: everything that determines its content, as JSON: settings by name, fingerprints of inputs.

    Raises:
        ProvenanceMismatchError: the output was made from something else, or has no provenance.
        ArtifactError: the output cannot be written.
    """
    with folder_lock(made, wait=True):
        yield find_or_note(made, kind, provenance)


def find_or_note(made: Path, kind: Kind, provenance: Mapping[str, Any]) -> Artifact | None:
    """Return an output's artifact as `cached` does, for a caller that has its lock.

    Raises:
        ProvenanceMismatchError: the output was made from something else, or has no provenance.
        ArtifactError: the output cannot be written.
    """
    return _load_whole(made, kind) if is_made(made, provenance) else None


def is_made(out: Path, provenance: Mapping[str, Any]) -> bool:
    """Return whether an output exists and was made from the same; write its provenance if there is none.

    The output may be a folder that is no artifact, whose files nothing can verify.

    Raises:
        ProvenanceMismatchError: the output was made from something else, or has no provenance.
        ArtifactError: the provenance cannot be written.
    """
    if out.is_dir() and any(out.iterdir()):
        require_same_provenance(out, provenance)
        return True
    write_json(provenance_file(out), provenance)  # first, so that no output ever exists without it
    return False


def _load_whole(made: Path, kind: Kind) -> Artifact | None:
    """Load a complete artifact; rename a damaged one.

    A stage that was killed between its result and the removal of its checkpoints finishes that itself.
    """
    training = made.with_name(f"{made.name}.training")
    if any(training.glob("step-*")) or any(training.glob(".step-*")):
        return None
    try:
        return Artifact.load(made, kind)
    except ArtifactError as error:
        aside = made.with_name(f"{made.name}.damaged-{uuid.uuid4().hex}")
        made.rename(aside)
        say(f"{made} is damaged, and is made again; the damaged one is now {aside}: {error}")
        return None


def shared_results() -> str | None:
    """Return the folder or URI of shared results; None if results are not shared."""
    return os.environ.get(RESULTS_VARIABLE) or None


@contextlib.contextmanager
def shared_result(
    where: str, kind: Kind, provenance: Mapping[str, Any], part: str = ""
) -> Iterator[tuple[Path, Artifact | None]]:
    """Hold a shared result; yield its folder, and its artifact if it exists.

    Args:
        provenance: everything that determines its content, code included.
        part: folder of the artifact within the result, if the result has more.

    Raises:
        ArtifactError: the result cannot be written.
        MissingExtraError: the results' URI needs a client that is not installed.
    """
    with shared_cache_dir(where, _result_name(kind, provenance)) as folder:
        result = folder / RESULT
        write_json(provenance_file(result / part), provenance)  # object storage keeps artifacts only
        with cached(result / part, kind, provenance) as found:
            yield result, found


def has_shared_result(where: str, kind: Kind, provenance: Mapping[str, Any], part: str = "") -> bool:
    """Return whether a shared result exists, without loading it."""
    inner = PurePosixPath(_result_name(kind, provenance), RESULT, part, MANIFEST)
    uri = uri_of(where)
    return (RemotePath.of(uri) / inner if uri else Path(where) / inner).exists()


def _result_name(kind: Kind, provenance: Mapping[str, Any]) -> str:
    return f"{kind}-{json_fingerprint(provenance)[:32]}"


def code_version() -> dict[str, Any]:
    """Return everything but settings and inputs that may change an artifact: sources, image, versions of packages."""
    versions = {}
    for package in _DECISIVE_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {"lingraft": _source_hash(), "image": os.environ.get(IMAGE_VARIABLE), **versions}


@functools.cache
def _source_hash() -> str:
    """SHA-256 over the library's own files, since a version may be built from changed sources."""
    root = Path(__file__).parents[1]
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    return hashlib.sha256("\n".join(f"{name} {sha256_of(root / name)}" for name in names).encode()).hexdigest()


def provenance_file(out: Path) -> Path:
    """Return the file with the provenance of an output."""
    return out.with_name(f"{out.name}{_KEY_ENDING}")


def require_same_provenance(out: Path, provenance: Mapping[str, Any]) -> None:
    """Refuse an output that was made from something else.

    Raises:
        ProvenanceMismatchError: it was, or its provenance cannot be read; the message says what differs.
    """
    key = provenance_file(out)
    wanted = json.loads(json.dumps(provenance))
    try:
        found = json.loads(key.read_bytes())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ProvenanceMismatchError(
            f"{out} is there already, and {key.name}, which would say from what it was made, cannot be read: {error}. "
            + _remedy(out)
        ) from error
    if changed := list_differences(found, wanted):
        raise ProvenanceMismatchError(f"{out} was made from something else: {'; '.join(changed)}. {_remedy(out)}")


def list_differences(found: Any, wanted: Any) -> list[str]:
    """Return the differences of two JSON values for people, leaf by leaf."""
    before = _leaves(found)
    now = _leaves(wanted)
    changed = [name for name in sorted({*before, *now}) if before.get(name, _ABSENT) != now.get(name, _ABSENT)]
    return [f"{name} was {before.get(name, _ABSENT)}, is {now.get(name, _ABSENT)}" for name in changed]


def _remedy(out: Path) -> str:
    """Name all outputs that depend on this one, since their provenance would be refused next."""
    keys = [*out.parent.glob(f"*{_KEY_ENDING}"), *out.parent.glob(f"*/*{_KEY_ENDING}")]
    provenances = {key.with_name(key.name.removesuffix(_KEY_ENDING)): key.read_bytes() for key in keys}
    followers = sorted(map(str, _dependents(out, provenances)))
    named = f", which is here {', '.join(followers)}," if followers else ""
    again = f"Remove {out} and what was made from it{named} to have it made again"
    return f"{again}, or choose another folder for all results."


def _dependents(out: Path, provenances: Mapping[Path, bytes]) -> set[Path]:
    try:
        its = artifact_fingerprint(out).encode()
    except ArtifactError:  # a folder that is no artifact is the input of nothing
        return set()
    direct = {folder for folder, key in provenances.items() if its in key and folder != out and folder.exists()}
    rest = {folder: key for folder, key in provenances.items() if folder not in direct}
    return direct.union(*(_dependents(folder, rest) for folder in direct))


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {name: value}
    return {
        leaf: found
        for key, inner in value.items()
        for leaf, found in _leaves(inner, f"{name}.{key}" if name else key).items()
    }
