"""Maintenance of the registry: find and repair damaged versions, and find versions that nothing needs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.errors import ArtifactError
from lingraft.tracking.client import RetryingClient, UnreachableError
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.decisions import promotions_in_effect, recorded_champion
from lingraft.tracking.promotion.lineage import parents_of
from lingraft.tracking.registry import upload_files
from lingraft.tracking.tags import mismatched_tag, mlflow_tags, surplus_tags
from lingraft.tracking.versions import REPAIR, Version, delete_tag, download, set_tags

_DAY_MS = 24 * 60 * 60 * 1000


def find_damage(client: RetryingClient, version: Version, found: Sequence[Version]) -> str | None:
    """Return what is wrong with a version, without its title; None if its files, its tags and its primary are right.

    The artifact is downloaded, and every file hashed.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind = Kind(str(version.kind))
            made = download(client, version, kind, Path(folder) / "artifact", title="its artifact")
        except UnreachableError:
            raise
        except ValueError as error:  # our own errors, and an unknown kind
            return str(error)
        if problem := mismatched_tag(version.tags, made):
            return f"{problem} {REPAIR}"
        return _missing_primary(version, found)


def restore(client: RetryingClient, version: Version, folder: Path) -> None:
    """Repair the files of a version, and the tags that follow from them, from a folder with the same artifact.

    Number, aliases, decisions and all other tags stay.

    Args:
        folder: the artifact; its fingerprint must be that of the version's tag.

    Raises:
        ArtifactError: the folder is damaged or another artifact, or the store holds files that are not the artifact's.
    """
    made = Artifact.load(folder, read_manifest(folder).kind)
    if made.fingerprint != version.fingerprint:
        raise ArtifactError(
            f"{folder} has fingerprint {made.fingerprint}, but {version.title} was registered with "
            f"{version.fingerprint or 'none'}. Give a folder with the same artifact. If the tag was edited, set it "
            "back to the fingerprint in the version's description."
        )
    upload_files(client, version.model_id, made)
    set_tags(client, version, mlflow_tags(made))
    for name in surplus_tags(version.tags, made):
        delete_tag(client, version, name)
    with tempfile.TemporaryDirectory() as copy:
        download(client, version, made.manifest.kind, Path(copy) / "artifact")


def unrecorded_champions(client: RetryingClient, project: str, found: Sequence[Version]) -> list[str]:
    """Return a message for each champion that differs from the record of decisions."""
    problems = []
    for name in sorted({each.name for each in found}):
        ours = decisions.effective_decisions(decisions.history(client, project, name))
        expected = ours[-1].decision.after if ours else None
        actual = next((each.number for each in found if each.name == name and each.is_champion), None)
        if actual != expected:
            problems.append(
                f"champion of {name!r} is version {actual or 'none'}, but by the record it is {expected or 'none'}: "
                "the alias was moved without a decision, or a decision was broken off. Promote what is right."
            )
    return problems


def stale_versions(
    client: RetryingClient, project: str, found: Sequence[Version], now_ms: int, days: float
) -> list[Version]:
    """Return the versions that nothing needs: old, without an alias, and part of no version that is needed.

    Previous champions are needed, since a rollback returns to them. A primary needs its tasks and mini-models, which
    pipelines fetch with it: the last of each seed.

    Args:
        days: smallest age of a version that is not needed.
    """
    returns: set[tuple[str, int | None]] = set()
    for name in {each.name for each in found}:
        records = decisions.history(client, project, name)
        if standing := promotions_in_effect(records):
            returns.add((name, standing[-1].decision.before))
        if recorded := recorded_champion([each for each in found if each.name == name], records):
            returns.add((name, recorded.number))
    young = now_ms - days * _DAY_MS
    kept = [each for each in found if each.aliases or each.created_ms > young or (each.name, each.number) in returns]
    needed: set[str] = set()
    followers = {
        (each.name, each.tags.get("aligned_with"), each.tags.get("seed")): each
        for each in found
        if each.kind in {"task", "mini"}
    }
    while kept:
        needed |= {each.fingerprint for each in kept}
        marks = {mark for each in kept for mark in parents_of(each)}
        marks |= {each.fingerprint for (_, primary, _), each in followers.items() if primary in needed}
        kept = [each for each in found if each.fingerprint in marks - needed]
    return [each for each in found if each.fingerprint not in needed]


def _missing_primary(version: Version, found: Sequence[Version]) -> str | None:
    primary = version.tags.get("aligned_with")
    if primary is None or primary in {each.fingerprint for each in found}:
        return None
    return (
        f"it belongs to primary {primary[:12]}, which is not registered. Add it: `lingraft registry add PRIMARY "
        "--project NAME`."
    )


def require_no_problems(problems: Sequence[str]) -> None:
    """Fail if there are problems.

    Raises:
        ArtifactError: the message lists them.
    """
    if problems:
        listed = "\n  ".join(problems)
        counted = "1 thing is" if len(problems) == 1 else f"{len(problems)} things are"
        raise ArtifactError(f"{counted} wrong with the registry:\n  {listed}")
