"""Promotion and rollback: record a decision, move the alias, then complete the decision.

MLflow moves an alias in one request, but has no compare-and-set. The record of decisions makes up for that: the
decision with the lower number was first, and a superseded decision is not carried out. The alias follows from the
record, so the next process that reads the record completes an interrupted decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.artifacts.names import primary_of
from lingraft.config.gate import Gate
from lingraft.console import say
from lingraft.errors import GateError, NotRegisteredError, PromotionError, SupersededError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.bundle_gate import (
    NO_CHANGES,
    AllowedChanges,
    BundleChange,
    bundle_content,
    served_content,
)
from lingraft.tracking.promotion.decisions import (
    Decision,
    DecisionOutcome,
    Record,
    accepted_fingerprints,
    effective_decisions,
    last_number,
    project_of,
    promotions_in_effect,
    recorded_champion,
    superseded_by,
)
from lingraft.tracking.promotion.evidence import load_evidence, recorded_gate
from lingraft.tracking.promotion.gate import Check, all_passed, check_challenger, refusal_reason
from lingraft.tracking.versions import Version, champion_of, move_champion, version_of, versions, versions_of


@dataclass(frozen=True)
class PromotionResult:
    """Result of a promotion or rollback."""

    model: str
    before: int | None
    """Version that was champion; that of the record of decisions if somebody moved the alias by hand."""
    after: int | None
    """Version that is champion now, or would be after a dry run."""
    checks: tuple[Check, ...]
    record: Record | None
    """Recorded decision; None if there was nothing to do, or for a dry run."""

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
    """Make a version champion if it passes the gate of its kind; the decision is recorded either way.

    Args:
        asked_by: requester: a user, or a pipeline and its run.
        gate: gate of embeddings; if None, that of the recipe that they were registered with.
        dry_run: whether to run the checks only, and change nothing.
        allowed: changes to production that a bundle may make.
        after_decision: `last_number` of the model's decisions when the version was made from the champion's content.

    Raises:
        PromotionError: lingraft did not register the version, or `allowed` names a language that stays.
        SupersededError: another decision about the model was made at the same time, or after `after_decision`.
        GateError: there is no evidence, or no primary to be aligned with.
        NotRegisteredError: the registry lacks the version.
    """
    version = version_of(client, name, number)
    project = project_of(version)
    _require_bundle(version, allowed)
    records = decisions.history(client, project, name) if dry_run else reconciled_history(client, project, name)
    found = versions_of(client, name)
    champion = next((each for each in found if each.is_champion), None)
    if after_decision is not None:
        _require_no_later(records, after_decision, version)
    recorded = recorded_champion(found, records)
    if champion and champion.number == number:
        if recorded == champion:
            return PromotionResult(model=name, before=number, after=number, checks=(), record=None)
        champion = recorded  # the alias was moved by hand: the gate has not seen this version yet
    before = champion.number if champion else None
    change = _bundle_change(client, champion, version, recorded) if version.kind == "bundle" else None
    checks = tuple(_run_checks(client, project, version, champion, gate))
    if change:
        change.require_removed(allowed)
        checks += (*change.checks(allowed), *change.gate_checks(accepted_fingerprints(client, project)))
    passed = all_passed(checks)
    after = number if passed else before
    if dry_run:
        return PromotionResult(model=name, before=before, after=after, checks=checks, record=None)
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
        dropped=change.lost if change and passed else (),
        allowed=allowed,
    )
    if passed:
        record = _carry_out(client, project, decision, version)
    else:
        record = decisions.append(client, project, decision, version, DecisionOutcome.REFUSED)
    return PromotionResult(model=name, before=before, after=after, checks=checks, record=record)


def rollback(
    client: RetryingClient, name: str, asked_by: str, dry_run: bool = False, allowed: AllowedChanges = NO_CHANGES
) -> PromotionResult:
    """Undo the last promotion: the alias returns to the previous champion, or to none if there was none.

    Args:
        asked_by: requester: a user, or a pipeline and its run.
        dry_run: whether to run the checks only, and change nothing.
        allowed: changes to production that a bundle's rollback may make.

    Raises:
        PromotionError: there is no promotion to undo, the previous champion does not fit the project's primary, or the
            rollback changes production in a way that is not allowed.
        SupersededError: another decision about the model was made at the same time, and was first.
        NotRegisteredError: the registry has no such model.
    """
    found = versions_of(client, name)
    if not found:
        raise NotRegisteredError(f"the registry has no model {name!r}. `lingraft registry ls` lists what it has.")
    project = project_of(found[-1])
    _require_bundle(found[-1], allowed)
    records = decisions.history(client, project, name) if dry_run else reconciled_history(client, project, name)
    found = versions_of(client, name)  # again: a promotion may have ended since
    standing = promotions_in_effect(records)
    if not standing:
        raise PromotionError("no promotion of this model is left to take back.")
    undone = standing[-1]
    target = _rollback_version(client, project, undone, found)
    champion = next((each for each in found if each.is_champion), None)
    before = champion.number if champion else None
    after = target.number if target else None
    recorded = recorded_champion(found, records)
    change = _bundle_change(client, champion, target, recorded) if found[-1].kind == "bundle" else None
    checks = tuple(change.checks(allowed)) if change else ()
    if change:
        change.require_removed(allowed)
        if unmet := refusal_reason(checks):
            raise PromotionError(f"decision {undone.number} about {name!r} is not taken back. {unmet}")
    if dry_run:
        return PromotionResult(model=name, before=before, after=after, checks=checks, record=None)
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
    record = _carry_out(client, project, decision, target or champion or found[-1])
    return PromotionResult(model=name, before=before, after=after, checks=checks, record=record)


def reconciled_history(client: RetryingClient, project: str, name: str) -> list[Record]:
    """Complete all open decisions about a model, and return its record of decisions.

    Their own process may be completing them at this moment; doing it twice does no harm.
    """
    while True:
        records = decisions.history(client, project, name)
        open_decisions = [record for record in records if record.outcome is DecisionOutcome.INTENDED]
        if not open_decisions:
            return records
        first = effective_decisions(records)
        for record in open_decisions:
            wins = record in first
            if wins and record is first[-1]:
                move_champion(client, name, record.decision.after)
            outcome = DecisionOutcome.DONE if wins else DecisionOutcome.SUPERSEDED
            decisions.complete(client, project, record, outcome)
            say(f"Decision {record.number} about {name!r} was left open and is now {outcome}.")


def languages_to_readapt(client: RetryingClient, project: str, primary: str) -> list[str]:
    """Return the languages whose champion is not aligned with a primary, and which must be adapted again."""
    return [
        each.tags["language"] for each in misaligned_champions(client, project, primary) if each.kind == "embeddings"
    ]


def misaligned_champions(client: RetryingClient, project: str, primary: str) -> list[Version]:
    """Return the champions of a project, of any kind, that are not aligned with a primary, given its fingerprint."""
    champions = [each for each in versions(client, project) if each.is_champion and each.kind != "primary"]
    return [each for each in champions if each.tags.get("aligned_with") != primary]


def _primary_fingerprint(client: RetryingClient, project: str) -> str:
    primary = champion_of(client, primary_of(project))
    if primary is None:
        raise GateError(f"{primary_of(project)!r} has no champion to be aligned with. Promote a primary first.")
    return primary.fingerprint


def _bundle_change(
    client: RetryingClient, before: Version | None, after: Version | None, recorded: Version | None
) -> BundleChange:
    return BundleChange(
        before=served_content(client, before),
        after=bundle_content(client, after) if after else None,
        recorded=served_content(client, recorded),
    )


def _run_checks(
    client: RetryingClient, project: str, version: Version, champion: Version | None, gate: Gate | None
) -> Sequence[Check]:
    if version.kind == "primary":
        return [Check(name="primary", passed=True, says="a primary decides what all else must be aligned with")]
    primary = _primary_fingerprint(client, project)
    if version.kind != "embeddings":
        own = version.tags.get("aligned_with")
        says = f"{version.title} is aligned with primary {str(own)[:12]}; the project's is {primary[:12]}"
        return [Check(name="aligned", passed=own == primary, says=says)]
    eligible = champion if champion and champion.tags.get("aligned_with") == primary else None
    try:
        theirs = load_evidence(client, eligible) if eligible else None
    except GateError as error:  # the champion's scores are unknown, so no challenger can beat them
        return [Check(name="comparable", passed=False, says=str(error))]
    tasks = {
        each.tags["task"]
        for each in versions(client, project)
        if each.kind == "task" and each.tags.get("aligned_with") == primary
    }
    return check_challenger(gate or recorded_gate(version), primary, load_evidence(client, version), theirs, tasks)


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
    if latest.number > record.number:  # another process completed our decision, and made a later one
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
    if target.kind != "primary" and target.tags.get("aligned_with") != _primary_fingerprint(client, project):
        raise PromotionError(
            f"{target.title}, champion before decision {undone.number}, belongs to another primary. Adapt again, or "
            f"roll {primary_of(project)!r} back first."
        )
    return target


def _require_bundle(version: Version, allowed: AllowedChanges) -> None:
    if version.kind != "bundle" and allowed != NO_CHANGES:
        raise PromotionError(
            f"{version.name!r} is no bundle, so it has no languages, primary or labels in production that could be "
            "changed by name. Leave --drop-language, --new-primary and --new-labels out."
        )


def _require_no_later(records: Sequence[Record], after_decision: int, version: Version) -> None:
    if later := [each for each in effective_decisions(records) if each.number > after_decision]:
        latest = later[-1].decision
        raise SupersededError(
            f"{version.title} was made from the champion as it was before decision {later[-1].number} "
            f"({latest.action} version {latest.after} by {latest.asked_by}). Make it again."
        )
