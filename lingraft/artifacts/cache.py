"""Results that are made once: one is reused if the same version made it from the same settings and inputs.

A file beside each result, `<out>.made-from.json`, is its key: the version of lingraft, settings, and fingerprints of
inputs. A result of another key is refused. A damaged result is renamed, and made again.

`LINGRAFT_RESULTS` names a folder or URI where all runs and pods share results. Each result has a folder there, named
after the hash of its key:

    <kind>-<hash>/result                   the result
                  result.made-from.json    its key
                  result.training/         checkpoints, until the result is complete

A folder in object storage is downloaded when a stage begins. It is uploaded each minute, and when the stage ends.
"""

import contextlib
import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lingraft._version import __version__
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import cache_folder, make_folder, write_json
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import Kind, json_fingerprint
from lingraft.artifacts.remote import synced_folder, uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.console import say
from lingraft.errors import ArtifactError

RESULTS_VARIABLE = "LINGRAFT_RESULTS"
"""Environment variable: folder or URI of shared results and checkpoints."""
_ABSENT = "nothing"
_HASH_DIGITS = 64
_RESULT = "result"
"""Name of the result in the folder of a shared result."""


class ProvenanceMismatchError(ArtifactError):
    """A result exists that was made from other settings or inputs, or by another version."""


@contextlib.contextmanager
def cached(made: Path, kind: Kind, provenance: Mapping[str, Any]) -> Iterator[Artifact | None]:
    """Hold a result, and yield its artifact if it was made from the same before; None if it is to be made now.

    Processes that make the same wait for each other.

    Args:
        provenance: everything beside the version that determines its content, as JSON: settings by name, fingerprints
            of inputs.
    """
    with folder_lock(made, wait=True):
        yield find_or_note(made, kind, provenance)


def find_or_note(made: Path, kind: Kind, provenance: Mapping[str, Any]) -> Artifact | None:
    """Return a result's artifact as `cached` does, for a caller that has its lock."""
    return _load_whole(made, kind) if is_made(made, provenance) else None


def is_made(out: Path, provenance: Mapping[str, Any]) -> bool:
    """Return whether a result exists and was made from the same; write its key if there is none.

    The result may be a folder that is no artifact, whose files nothing can verify.
    """
    if out.is_dir() and any(out.iterdir()):
        require_same_provenance(out, provenance)
        return True
    write_json(_key_file(out), _key(provenance))  # first, so that no result ever exists without it
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


@contextlib.contextmanager
def shared_result(
    where: str, kind: Kind, provenance: Mapping[str, Any], part: str = ""
) -> Iterator[tuple[Path, Artifact | None]]:
    """Hold a shared result; yield its folder, and its artifact if it exists.

    Args:
        where: folder or URI of all shared results.
        provenance: everything beside the version that determines its content.
        part: folder of the artifact within the result, if the result has more.
    """
    with shared_folder(where, _result_name(kind, provenance)) as folder:
        result = folder / _RESULT
        with cached(result / part, kind, provenance) as found:
            yield result, found


@contextlib.contextmanager
def shared_folder(where: str, name: str) -> Iterator[Path]:
    """Yield a folder among shared results; one in object storage is downloaded now, and uploaded at the end."""
    if uri := uri_of(where):
        place = RemotePath.of(uri, ArtifactError) / name
        make_folder(cache_folder("results"))
        with (
            tempfile.TemporaryDirectory(dir=cache_folder("results")) as local,
            synced_folder(place, Path(local)),
        ):
            yield Path(local)
    else:
        yield Path(where) / name


def _result_name(kind: Kind, provenance: Mapping[str, Any]) -> str:
    return f"{kind}-{json_fingerprint(_key(provenance))[:32]}"


def _key(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {"lingraft": __version__, **provenance}


def _key_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.made-from.json")


def require_same_provenance(out: Path, provenance: Mapping[str, Any]) -> None:
    """Refuse a result that was made from something else.

    Raises:
        ProvenanceMismatchError: it was, or its key cannot be read; the message says what differs.
    """
    file = _key_file(out)
    remedy = f"Remove {out} and what was made from it to have it made again, or choose another folder for all results."
    try:
        found = json.loads(file.read_bytes())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ProvenanceMismatchError(
            f"{out} exists already, and {file.name}, its key, cannot be read: {error}. {remedy}"
        ) from error
    if changed := list_differences(found, json.loads(json.dumps(_key(provenance)))):
        raise ProvenanceMismatchError(f"{out} was made from something else: {'; '.join(changed)}. {remedy}")


def list_differences(found: Any, wanted: Any) -> list[str]:
    """Return the differences of two JSON values for people: settings, then files, without their hashes."""
    before, now = _leaves(found), _leaves(wanted)
    settings, files = [], []
    for path in sorted({*before, *now}):
        was, new = before.get(path, _ABSENT), now.get(path, _ABSENT)
        if was != new and _HASH_DIGITS in (len(str(was)), len(str(new))):
            state = "is new" if was == _ABSENT else "is no longer given" if new == _ABSENT else "has changed"
            files.append(f"{path[-1]} {state}")
        elif was != new:
            settings.append(f"{'.'.join(path)} was {was}, is {new}")
    return settings + files


def _leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {leaf: found for key, inner in value.items() for leaf, found in _leaves(inner, (*path, key)).items()}
