"""Long work that may stop at any time and go on later: an artifact that is there is not made again.

What it was made from is kept beside it, so that it is never taken for one of other settings or other inputs.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact, Kind, read_manifest
from lingraft.artifacts.files import write_json
from lingraft.errors import ArtifactError

_ABSENT = "nothing"
_KEY_ENDING = ".made-from.json"


class ProvenanceMismatchError(ArtifactError):
    """An artifact stands where one is to be made, but was made from other settings or inputs."""


def get_or_make(out: Path, kind: Kind, made_from: Mapping[str, Any], make: Callable[[], object]) -> Artifact:
    """The artifact at `out`: made now, unless it is there already and was made from the same.

    Args:
        out: folder of the artifact; what it was made from stands beside it, in `<out>.made-from.json`.
        kind: what it is.
        made_from: all that decides its content, as JSON can hold it: settings by name, and the `mark` of each input.
        make: writes the artifact to `out`. Only called if nothing is there.

    Raises:
        ProvenanceMismatchError: what is there was made from something else, or it is not known from what.
        ArtifactError: what is there is damaged or of another kind, or nothing can be written.
    """
    make_if_absent(out, made_from, make)
    return Artifact.load(out, kind)


def make_if_absent(out: Path, made_from: Mapping[str, Any], make: Callable[[], object]) -> None:
    """Fill a folder that is no artifact, such as a checkpoint for transformers, by the rules of `get_or_make`.

    Nothing can tell whether its files are still what they were.

    Raises:
        ProvenanceMismatchError: what is there was made from something else, or it is not known from what.
        ArtifactError: nothing can be written.
    """
    if out.is_dir() and any(out.iterdir()):
        require_same_provenance(out, made_from)
    else:
        write_json(provenance_file(out), made_from)  # first, so that nothing ever stands without it
        make()


def artifact_fingerprint(folder: Path) -> str:
    """Fingerprint of an artifact, from its manifest alone: its files are not read.

    Raises:
        ArtifactError: there is no artifact, or its manifest is damaged.
    """
    return Artifact(folder, read_manifest(folder)).fingerprint


def provenance_file(out: Path) -> Path:
    """The file that says what the artifact at `out` was made from."""
    return out.with_name(f"{out.name}{_KEY_ENDING}")


def require_same_provenance(out: Path, made_from: Mapping[str, Any]) -> None:
    """Refuse what stands at `out` if it was made from something else.

    Raises:
        ProvenanceMismatchError: it was, or it is not known from what; the message says what differs.
    """
    key, wanted = provenance_file(out), json.loads(json.dumps(made_from))
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
    """How two values from JSON differ, leaf by leaf, in words."""
    before, now = _leaves(found), _leaves(wanted)
    changed = [name for name in sorted({*before, *now}) if before.get(name, _ABSENT) != now.get(name, _ABSENT)]
    return [f"{name} was {before.get(name, _ABSENT)}, is {now.get(name, _ABSENT)}" for name in changed]


def _remedy(out: Path) -> str:
    """What is made from a new artifact differs too, so that one removal at a time would be refused again and again."""
    keys = [*out.parent.glob(f"*{_KEY_ENDING}"), *out.parent.glob(f"*/*{_KEY_ENDING}")]
    made_from = {key.with_name(key.name.removesuffix(_KEY_ENDING)): key.read_bytes() for key in keys}
    followers = sorted(map(str, _dependents(out, made_from)))
    named = f", which is here {', '.join(followers)}," if followers else ""
    again = f"Remove {out} and what was made from it{named} to have it made again"
    return f"{again}, or choose another folder for all results."


def _dependents(out: Path, made_from: Mapping[Path, bytes]) -> set[Path]:
    """Those of some folders that were made from an artifact, or from what was made from it."""
    try:
        its = artifact_fingerprint(out).encode()
    except ArtifactError:  # a folder for others than us has no mark, and nothing is made from it
        return set()
    direct = {folder for folder, key in made_from.items() if its in key and folder != out and folder.exists()}
    rest = {folder: key for folder, key in made_from.items() if folder not in direct}
    return direct.union(*(_dependents(folder, rest) for folder in direct))


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Values that are no mappings, by their keys joined with dots."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    return {
        leaf: found
        for key, inner in value.items()
        for leaf, found in _leaves(inner, f"{name}.{key}" if name else key).items()
    }
