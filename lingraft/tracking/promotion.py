"""Promotion: one function checks a version, and one moves the alias `champion`.

MLflow moves an alias in one request, without comparing. So the champion is read again just before and after the move:
of two promotions at once, the one that finds another champion than it was checked against is told so. `previous` is
moved first, so that a process killed in between leaves the champion as it was, and a rerun does the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pydantic
from mlflow import MlflowClient

from lingraft.artifacts.names import primary_of
from lingraft.config.gate import Gate
from lingraft.data.languages import quoted
from lingraft.errors import GateError, PromotionError, SupersededError
from lingraft.tracking.evidence import load_evidence, recorded_gate
from lingraft.tracking.gate import Check, all_passed, check_challenger, check_parity
from lingraft.tracking.tags import ANSWERS, LANGUAGES, PARITY
from lingraft.tracking.versions import (
    CHAMPION,
    PREVIOUS,
    Version,
    version_by_alias,
    version_of,
    versions,
    versions_of_kind,
)

VERDICT = "verdict"
"""Tag of a version with the gate's last verdict on it, as JSON."""
_EMBEDDINGS = "data.embeddings-"
"""Prefix of a bundle's tags with the fingerprints of its embeddings; the language follows."""


@dataclass(frozen=True)
class AllowedChanges:
    """Changes to production that the requester of a bundle's promotion has allowed by name."""

    drop_languages: tuple[str, ...] = ()
    """Languages that may leave production."""
    new_primary: bool = False
    """Whether the bundle may belong to another primary than the champion."""
    new_labels: bool = False
    """Whether kind of task, labels or their order may differ from the champion's."""


NO_CHANGES = AllowedChanges()


class Verdict(pydantic.BaseModel):
    """The gate's verdict on a version: who asked, when, the champion then, and every check with its numbers."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    model: str
    version: int
    passed: bool
    asked_by: str
    """Requester: a user, or a pipeline and its run."""
    asked_at: str
    """Time by the requester's clock, in UTC and ISO 8601."""
    before: int | None
    """Version that was champion; None if there was none."""
    checks: tuple[Check, ...] = ()


def verdict_on(version: Version) -> Verdict | None:
    """Return the last verdict on a version; None if the gate was never asked."""
    return Verdict.model_validate_json(version.tags[VERDICT]) if VERDICT in version.tags else None


def promote(
    client: MlflowClient,
    name: str,
    number: int,
    asked_by: str,
    gate: Gate | None = None,
    allowed: AllowedChanges = NO_CHANGES,
    dry_run: bool = False,
    champion_evaluation: Path | None = None,
) -> Verdict:
    """Make a version champion if it passes the gate of its kind; its tag keeps the verdict either way.

    Args:
        asked_by: requester: a user, or a pipeline and its run.
        gate: gate of embeddings; if None, that of the recipe that they were registered with.
        allowed: changes to production that a bundle may make.
        dry_run: whether to run the checks only, and change nothing.
        champion_evaluation: evaluation of the champion to compare with, in place of that of its registration.
    """
    version = version_of(client, name, number)
    champion = version_by_alias(client, name)
    changes = _change_checks(champion, version, allowed)
    if version.is_champion:
        checks = [Check(name="champion", passed=True, says=f"{version.title} is champion already")]
    elif version.kind == "embeddings":
        checks = _embeddings_checks(client, version, champion, gate, champion_evaluation)
    else:
        checks = [*_aligned(client, version), *changes]
        if version.kind == "bundle":
            parity = {language: float(value) for language, value in version.tags_with(PARITY).items()}
            checks.append(check_parity(version.title, parity, languages_of(version)))
            checks.append(_accepted(client, champion, version))
    verdict = _verdict(version, champion, asked_by, checks)
    if not (dry_run or version.is_champion):
        client.set_model_version_tag(name, str(number), VERDICT, verdict.model_dump_json())
        if verdict.passed:
            _move_champion(client, champion, version)
    return verdict


def roll_back(
    client: MlflowClient, name: str, asked_by: str, allowed: AllowedChanges = NO_CHANGES, dry_run: bool = False
) -> Verdict:
    """Make the previous champion champion again if it fits the project's primary, and a bundle keeps its languages.

    The verdict on the version that was champion is then that it was taken back.
    """
    champion, previous = (version_by_alias(client, name, alias) for alias in (CHAMPION, PREVIOUS))
    if previous is None or previous.is_champion:
        raise PromotionError(f"{name!r} has no previous champion to return to. Promote a version by its number.")
    checks = [*_aligned(client, previous), *_change_checks(champion, previous, allowed)]
    verdict = _verdict(previous, champion, asked_by, checks)
    if verdict.passed and not dry_run:
        _require_champion(client, name, champion)
        client.set_registered_model_alias(name, CHAMPION, str(previous.number))
        client.delete_registered_model_alias(name, PREVIOUS)
        if champion:
            back = Check(name="rollback", passed=False, says=f"version {previous.number} took its place again")
            taken = _verdict(champion, champion, asked_by, [back])
            client.set_model_version_tag(name, str(champion.number), VERDICT, taken.model_dump_json())
    return verdict


def _move_champion(client: MlflowClient, before: Version | None, after: Version) -> None:
    """Point `previous` at the champion, and then `champion` at a version."""
    _require_champion(client, after.name, before)
    if before:
        client.set_registered_model_alias(after.name, PREVIOUS, str(before.number))
        _require_champion(client, after.name, before)
    client.set_registered_model_alias(after.name, CHAMPION, str(after.number))
    _require_champion(client, after.name, after)


def _require_champion(client: MlflowClient, name: str, expected: Version | None) -> None:
    found = version_by_alias(client, name)
    ours, number = (each.number if each else None for each in (expected, found))
    if number != ours:
        verdict = verdict_on(found) if found else None
        raise SupersededError(
            f"{verdict.asked_by if verdict else 'somebody'} made version {number or 'none'} of {name!r} champion at "
            f"the same time, in place of {ours or 'none'}. Look at it, and ask again."
        )


def stale_champions(client: MlflowClient, project: str, primary: str) -> list[Version]:
    """Return the champions of a project, of any kind, that do not belong to a primary, given its fingerprint."""
    champions = [each for each in versions(client, project) if each.is_champion and each.kind != "primary"]
    return [each for each in champions if each.primary != primary]


def languages_of(bundle: Version | None) -> list[str]:
    """Return the languages of a registered bundle, the source language first; none without one."""
    return bundle.tags[LANGUAGES].split(",") if bundle and LANGUAGES in bundle.tags else []


def embeddings_in(bundle: Version | None) -> dict[str, str]:
    """Return the fingerprints of a bundle's embeddings by language; the source language has none."""
    return bundle.tags_with(_EMBEDDINGS) if bundle else {}


def project_of(version: Version) -> str:
    """Return the project of a version."""
    if "project" not in version.tags:
        raise PromotionError(
            f"{version.title} has no tag 'project', so lingraft has not registered it. Register it by a pipeline."
        )
    return version.tags["project"]


def _verdict(version: Version, champion: Version | None, asked_by: str, checks: Sequence[Check]) -> Verdict:
    return Verdict(
        model=version.name,
        version=version.number,
        passed=all_passed(checks),
        asked_by=asked_by,
        asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
        before=champion.number if champion else None,
        checks=tuple(checks),
    )


def _embeddings_checks(
    client: MlflowClient, version: Version, champion: Version | None, gate: Gate | None, evaluation: Path | None
) -> list[Check]:
    project = project_of(version)
    primary = _primary_fingerprint(client, project)
    eligible = champion if champion and champion.primary == primary else None
    try:
        theirs = load_evidence(eligible, evaluation) if eligible else None
    except GateError as error:  # the champion's scores are unknown, so no challenger can beat them
        return [Check(name="comparable", passed=False, says=str(error))]
    tasks = {each.tags["task"] for each in versions_of_kind(client, project, "task") if each.primary == primary}
    return check_challenger(gate or recorded_gate(version), primary, load_evidence(version), theirs, tasks)


def _aligned(client: MlflowClient, version: Version) -> list[Check]:
    project = project_of(version)
    if version.kind == "primary":
        return [Check(name="primary", passed=True, says="a primary decides what all else must be aligned with")]
    primary = _primary_fingerprint(client, project)
    says = f"{version.title} is aligned with primary {str(version.primary)[:12]}; the project's is {primary[:12]}"
    return [Check(name="aligned", passed=version.primary == primary, says=says)]


def _primary_fingerprint(client: MlflowClient, project: str) -> str:
    primary = version_by_alias(client, primary_of(project))
    if primary is None:
        raise GateError(f"{primary_of(project)!r} has no champion to be aligned with. Promote a primary first.")
    return primary.fingerprint


def _change_checks(before: Version | None, after: Version, allowed: AllowedChanges) -> list[Check]:
    """Check that languages, primary and labels of a bundle stay, except for allowed changes."""
    if after.kind != "bundle" and allowed != NO_CHANGES:
        raise PromotionError(
            f"{after.name!r} is no bundle, so it has no languages, primary or labels in production that could be "
            "changed by name. Leave --drop-language, --new-primary and --new-labels out."
        )
    if after.kind != "bundle" or before is None:
        return []
    return [
        _languages(before, after, allowed),
        _kept("primary", "aligned_with", before, after, allowed.new_primary),
        _kept("labels", ANSWERS, before, after, allowed.new_labels),
    ]


def _languages(before: Version, after: Version, allowed: AllowedChanges) -> Check:
    served, new = languages_of(before), languages_of(after)
    lost = [language for language in served if language not in new]
    if strange := sorted({*allowed.drop_languages} - {*lost}):
        raise PromotionError(
            f"--drop-language names {quoted(strange)}, but this takes none of them out of production: the champion "
            f"has {quoted(served) or 'none'}; {quoted(lost) or 'none'} would leave."
        )
    unnamed = [language for language in lost if language not in allowed.drop_languages]
    if not unnamed:
        dropped = f", but for {quoted(lost)}, which somebody named" if lost else ""
        return Check(name="languages", passed=True, says=f"all languages of the champion stay{dropped}")
    options = " ".join(f"--drop-language {language}" for language in unnamed)
    says = (
        f"{quoted(unnamed)} would leave production: the champion has {quoted(served)}, {after.title} has "
        f"{quoted(new)}. Run the language pipeline, which takes them along, or ask for it by name: {options}"
    )
    return Check(name="languages", passed=False, says=says)


def _kept(name: str, tag: str, before: Version, after: Version, allowed: bool) -> Check:
    """Check that a bundle has a tag of the champion's, whose meaning clients depend on."""
    theirs, ours = before.tags.get(tag), after.tags.get(tag)
    passed = allowed or theirs == ours
    says = f"the champion has {name} {theirs}, {after.title} has {ours}"
    remedy = "" if passed else f". Ask for the new {name} by name: --new-{name}"
    return Check(name=name, passed=passed, says=says + remedy)


def _accepted(client: MlflowClient, before: Version | None, after: Version) -> Check:
    accepted = {
        each.fingerprint
        for each in versions_of_kind(client, project_of(after), "embeddings")
        if (verdict := verdict_on(each)) and verdict.passed
    }
    ours, served = embeddings_in(after), embeddings_in(before)
    refused = [
        f"{language!r} ({mark[:12]})"
        for language, mark in ours.items()
        if mark not in {*accepted, served.get(language)}
    ]
    says = f"the gate has accepted the embeddings of {quoted(ours) or 'no other language'}"
    if refused:
        says = (
            f"the gate has not accepted the embeddings of {', '.join(refused)} in {after.title}. Promote them first, "
            "and bundle again"
        )
    return Check(name="embeddings", passed=not refused, says=says)
