"""Promotion and rollback: a decision is written down, then the alias is moved, then the decision is completed.

MLflow moves an alias in one request, but has no compare-and-set. The record of decisions has: whoever gets the lower
number was first, and a decision that another one came before is not carried out. The alias follows from the record, so
a decision that was broken off is finished by whoever looks next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.artifacts.names import primary_of
from lingraft.config.gate import Gate
from lingraft.console import say
from lingraft.errors import GateError, NotRegisteredError, PromotionError, SupersededError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES, AllowedChanges
from lingraft.tracking.promotion.bundles import accepted_fingerprints, bundle_change, recorded_champion
from lingraft.tracking.promotion.decisions import (
    Decision,
    DecisionOutcome,
    Record,
    effective_decisions,
    promotions_in_effect,
    superseded_by,
)
from lingraft.tracking.promotion.evidence import load_evidence, recorded_gate
from lingraft.tracking.promotion.gate import Check, all_passed, check_challenger, refusal_reason
from lingraft.tracking.versions import Version, champion_of, move_champion, version_of, versions, versions_of


@dataclass(frozen=True)
class PromotionResult:
    """What a promotion or rollback came to."""

    model: str
    before: int | None
    """Version that was champion; by the record of decisions, where somebody has moved the alias to this one by hand."""
    after: int | None
    """Version that is champion now, or would be."""
    checks: tuple[Check, ...]
    record: Record | None
    """None where nothing was to be done, or only asked."""

    @property
    def moved(self) -> bool:
        """Whether the alias was moved."""
        return self.record is not None and self.record.moves


def promote(
    client: RetryingClient,
    name: str,
    number: int,
    asked_by: str,
    gate: Gate | None = None,
    dry_run: bool = False,
    allowed: AllowedChanges = NO_CHANGES,
    after_decision: int | None = None,
) -> PromotionResult:
    """Make a version champion if it passes the gate of its kind; the decision is kept either way.

    Args:
        client: MLflow, with retries.
        name: registered model.
        number: its version.
        asked_by: a user, or a pipeline and its run.
        gate: what embeddings must show; if absent, the gate of the recipe that they were registered with.
        dry_run: come to a verdict, and leave everything as it is.
        allowed: changes to what is in production that a bundle may bring.
        after_decision: number of the last decision about the model (`last_number`) when the version was made, if it was
            made from what the champion holds.

    Raises:
        PromotionError: the version is not one that lingraft registered, or `allowed` names a language that stays.
        SupersededError: another decision about the model was made at the same time, or since `after_decision`.
        GateError: there is no evidence, or no primary to be aligned with.
        TrackingError: the registry lacks the version, refuses, or stays down.
    """
    version = version_of(client, name, number)
    project = project_of(version)
    _require_bundle(version, allowed)
    records = decisions.history(client, project, name) if dry_run else reconciled_history(client, project, name)
    found = versions_of(client, name)
    champion = next((each for each in found if each.is_champion), None)
    if after_decision is not None:
        _require_no_later(records, after_decision, name, number)
    recorded = recorded_champion(found, records)
    if champion and champion.number == number:
        if recorded == champion:
            return PromotionResult(name, number, number, (), None)
        champion = recorded  # the alias was moved by hand: the gate has not seen this version yet
    before = champion.number if champion else None
    change = bundle_change(client, champion, version, recorded) if version.kind == "bundle" else None
    checks = tuple(_run_checks(client, project, version, champion, gate))
    if change:
        change.require_removed(allowed)
        checks += (*change.checks(allowed), *change.gate_checks(accepted_fingerprints(client, project)))
    if dry_run:
        return PromotionResult(name, before, number if all_passed(checks) else before, checks, None)
    decision = Decision(
        action="promote",
        model=name,
        asked_by=asked_by,
        asked_at=decisions.now(),
        before=before,
        after=number,
        fingerprint=version.fingerprint,
        knew=last_number(records),
        checks=checks,
        languages=change.after.languages if change and change.after else (),
        dropped=change.lost if change and all_passed(checks) else (),
        allowed=allowed,
    )
    if not all_passed(checks):
        record = decisions.append(client, project, decision, version, DecisionOutcome.REFUSED)
        return PromotionResult(name, before, before, checks, record)
    return PromotionResult(name, before, number, checks, _carry_out(client, project, decision, version))


def rollback(
    client: RetryingClient, name: str, asked_by: str, dry_run: bool = False, allowed: AllowedChanges = NO_CHANGES
) -> PromotionResult:
    """Take the last promotion back: the alias returns to the champion before, or to none if there was none.

    Args:
        client: MLflow, with retries.
        name: registered model.
        asked_by: a user, or a pipeline and its run.
        dry_run: say what would happen, and leave everything as it is.
        allowed: changes to what is in production that a bundle's rollback may bring.

    Raises:
        PromotionError: no promotion is left to take back, the champion before does not fit the project's primary, or
            it changes what is in production in a way that is not allowed.
        SupersededError: another decision about the model was made at the same time, and was first.
        TrackingError: the registry has no such model, refuses, or stays down.
    """
    found = versions_of(client, name)
    if not found:
        raise NotRegisteredError(f"the registry has no model {name!r}. `lingraft registry ls` lists what it has.")
    project = project_of(found[-1])
    _require_bundle(found[-1], allowed)
    records = decisions.history(client, project, name) if dry_run else reconciled_history(client, project, name)
    found = versions_of(client, name)  # again: a promotion may have ended since
    undone = _last_promotion(records)
    target = _rollback_version(client, project, undone, found)
    champion = next((each for each in found if each.is_champion), None)
    before = champion.number if champion else None
    after = target.number if target else None
    recorded = recorded_champion(found, records)
    change = bundle_change(client, champion, target, recorded) if found[-1].kind == "bundle" else None
    checks = tuple(change.checks(allowed)) if change else ()
    if change:
        change.require_removed(allowed)
        if unmet := refusal_reason(checks):
            raise PromotionError(f"decision {undone.number} about {name!r} is not taken back. {unmet}")
    if dry_run:
        return PromotionResult(name, before, after, checks, None)
    decision = Decision(
        action="rollback",
        model=name,
        asked_by=asked_by,
        asked_at=decisions.now(),
        before=before,
        after=after,
        fingerprint=target.fingerprint if target else None,
        knew=last_number(records),
        undoes=undone.number,
        checks=checks,
        languages=change.after.languages if change and change.after else (),
        dropped=change.lost if change else (),
        allowed=allowed,
    )
    return PromotionResult(
        name, before, after, checks, _carry_out(client, project, decision, target or champion or found[-1])
    )


def reconciled_history(client: RetryingClient, project: str, name: str) -> list[Record]:
    """The record of decisions about a model, once none of them is open: the alias has followed all of them.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    while True:
        records = decisions.history(client, project, name)
        if not any(record.outcome is DecisionOutcome.INTENDED for record in records):
            return records
        reconcile(client, project, name)


def reconcile(client: RetryingClient, project: str, name: str) -> list[Record]:
    """Finish what was broken off: decisions that were written down, and whose end is not known.

    Whoever made one may be at it this moment; to do the same twice does no harm.
    """
    records = decisions.history(client, project, name)
    first = effective_decisions(records)
    open_decisions = [record for record in records if record.outcome is DecisionOutcome.INTENDED]
    for record in open_decisions:
        wins = record in first
        if wins and record is first[-1]:
            move_champion(client, name, record.decision.after)
        decisions.complete(client, project, record, DecisionOutcome.DONE if wins else DecisionOutcome.SUPERSEDED)
        say(f"Decision {record.number} about {name!r} was left open and is now {'done' if wins else 'overtaken'}.")
    return open_decisions


def languages_to_readapt(client: RetryingClient, project: str, primary: str) -> list[str]:
    """Languages of a project whose champion is not aligned with a primary: they must be adapted again.

    Args:
        client: MLflow, with retries.
        project: whose languages.
        primary: fingerprint.
    """
    return [
        each.tags["language"] for each in misaligned_champions(client, project, primary) if each.kind == "embeddings"
    ]


def misaligned_champions(client: RetryingClient, project: str, primary: str) -> list[Version]:
    """Champions of a project that are not aligned with a primary, whatever their kind."""
    champions = [each for each in versions(client, project) if each.is_champion and each.kind != "primary"]
    return [each for each in champions if each.tags.get("aligned_with") != primary]


def rollback_target(records: Sequence[Record]) -> int | None:
    """The version that a rollback would return to."""
    standing = promotions_in_effect(records)
    return standing[-1].decision.before if standing else None


def project_of(version: Version) -> str:
    """Project of a version.

    Raises:
        PromotionError: it is not one that lingraft registered.
    """
    if "project" not in version.tags:
        raise PromotionError(
            f"{version.title} has no tag 'project', so lingraft has not registered it. Register it by a pipeline."
        )
    return version.tags["project"]


def primary_fingerprint(client: RetryingClient, project: str) -> str:
    """Fingerprint of a project's current primary.

    Raises:
        GateError: it has none.
    """
    primary = champion_of(client, primary_of(project))
    if primary is None:
        raise GateError(f"{primary_of(project)!r} has no champion to be aligned with. Promote a primary first.")
    return primary.fingerprint


def _run_checks(
    client: RetryingClient, project: str, version: Version, champion: Version | None, gate: Gate | None
) -> Sequence[Check]:
    if version.kind == "primary":
        return [Check(name="primary", passed=True, says="a primary decides what all else must be aligned with")]
    primary = primary_fingerprint(client, project)
    if version.kind != "embeddings":
        return [_aligned(version, primary)]
    eligible = champion if champion and champion.tags.get("aligned_with") == primary else None
    try:
        theirs = load_evidence(client, eligible) if eligible else None
    except GateError as error:  # what the champion is worth is not known, so nothing can be better
        return [Check(name="comparable", passed=False, says=str(error))]
    tasks = _tasks_of(versions(client, project), primary)
    return check_challenger(gate or recorded_gate(version), primary, load_evidence(client, version), theirs, tasks)


def _tasks_of(found: Sequence[Version], primary: str) -> set[str]:
    """Names of a primary's tasks."""
    return {each.tags["task"] for each in found if each.kind == "task" and each.tags.get("aligned_with") == primary}


def _aligned(version: Version, primary: str) -> Check:
    mark = version.tags.get("aligned_with")
    fits = mark == primary
    says = f"{version.title} is aligned with primary {str(mark)[:12]}; the project's is {primary[:12]}"
    return Check(name="aligned", passed=fits, says=says + ("" if fits else "."))


def _carry_out(client: RetryingClient, project: str, decision: Decision, about: Version) -> Record:
    record = decisions.append(client, project, decision, about, DecisionOutcome.INTENDED)
    before = effective_decisions(decisions.history(client, project, decision.model))
    if rival := superseded_by(record, before):
        decisions.complete(client, project, record, DecisionOutcome.SUPERSEDED)
        raise SupersededError(
            f"decision {record.number} about {decision.model!r} is not carried out: at the same time "
            f"{rival.decision.asked_by} decided to {rival.decision.action} version {rival.decision.after} "
            f"(decision {rival.number}). Look at it, and ask again."
        )
    move_champion(client, decision.model, decision.after)
    latest = effective_decisions(decisions.history(client, project, decision.model))[-1]
    if latest.number > record.number:  # we were taken for lost, and others have gone on
        move_champion(client, decision.model, latest.decision.after)
    decisions.complete(client, project, record, DecisionOutcome.DONE)
    return record.model_copy(update={"outcome": DecisionOutcome.DONE})


def _rollback_version(client: RetryingClient, project: str, undone: Record, found: Sequence[Version]) -> Version | None:
    number = undone.decision.before
    if number is None:
        return None
    target = next((each for each in found if each.number == number), None)
    if target is None:
        raise PromotionError(
            f"version {number} of {undone.decision.model!r}, champion before decision {undone.number}, was deleted. "
            "Promote another version."
        )
    if target.kind != "primary" and target.tags.get("aligned_with") != primary_fingerprint(client, project):
        raise PromotionError(
            f"{target.title}, champion before decision {undone.number}, belongs to another primary. Adapt again, or "
            f"roll {primary_of(project)!r} back first."
        )
    return target


def _last_promotion(records: Sequence[Record]) -> Record:
    standing = promotions_in_effect(records)
    if not standing:
        raise PromotionError("no promotion of this model is left to take back.")
    return standing[-1]


def last_number(records: Sequence[Record]) -> int:
    """Number of the last decision; 0 if there is none."""
    return max((record.number for record in records), default=0)


def _require_bundle(version: Version, allowed: AllowedChanges) -> None:
    if version.kind != "bundle" and allowed != NO_CHANGES:
        raise PromotionError(
            f"{version.name!r} is no bundle, so it has no languages, primary or labels in production that could be "
            "changed by name. Leave --drop-language, --new-primary and --new-labels out."
        )


def _require_no_later(records: Sequence[Record], after_decision: int, name: str, number: int) -> None:
    if later := [each for each in effective_decisions(records) if each.number > after_decision]:
        raise SupersededError(
            f"version {number} of {name!r} was made from the champion as it was before decision {later[-1].number} "
            f"({later[-1].decision.action} version {later[-1].decision.after} by {later[-1].decision.asked_by}). "
            "Make it again."
        )
