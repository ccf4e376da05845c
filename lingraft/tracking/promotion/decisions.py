"""The record of a project's decisions about its models: append-only, each decision completed once.

Every decision is a version of the registered model `<project>-decisions`. MLflow numbers versions itself, in one
transaction, and never reuses a number, not even a deleted one. The decision with the lower number came first, and all
readers agree on that. One request writes a decision together with its number.
"""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import mlflow
import pydantic
from mlflow import MlflowClient

from lingraft.errors import PromotionError, TrackingError
from lingraft.reports.run.records import GateVerdict
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES, AllowedChanges
from lingraft.tracking.promotion.gate import Check, refusal_reason, sentences
from lingraft.tracking.registry import require_model
from lingraft.tracking.versions import Version, search_versions, versions_of

_BODY = "decision"
_OUTCOME = "outcome"
_REQUEST = "lingraft.request"
_ABOUT = "about"
_PRECONDITIONS = ("aligned", "parity")
"""Checks that do not measure quality; a verdict shows them only if they fail."""


class DecisionOutcome(StrEnum):
    """State of a decision."""

    INTENDED = "intended"
    """The decision is recorded, and the alias may or may not have been moved."""
    DONE = "done"
    REFUSED = "refused"
    """The gate refused, and the alias was not moved."""
    SUPERSEDED = "overtaken"
    """Another decision about the model, made at the same time, has a lower number."""


class Decision(pydantic.BaseModel):
    """A decision about a model: who asked, the versions before and after, and the checks."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    action: Literal["promote", "rollback"]
    model: str
    asked_by: str
    """Requester: a user, or a pipeline and its run."""
    asked_at: str
    """Time by the requester's clock, in UTC and ISO 8601."""
    before: int | None
    """Version that was champion; None if there was none."""
    after: int | None
    """Version that becomes champion; None for none."""
    fingerprint: str | None
    """Fingerprint of the new champion's artifact."""
    knew: int
    """Number of the latest decision about the model when this one was made; 0 if there was none."""
    undoes: int | None = None
    """Number of the decision that a rollback undoes."""
    checks: tuple[Check, ...] = ()
    languages: tuple[str, ...] = ()
    """Languages of the new champion if it is a bundle."""
    dropped: tuple[str, ...] = ()
    """Languages that this decision removes from production, each named by the requester."""
    allowed: AllowedChanges = NO_CHANGES


class Record(pydantic.BaseModel, frozen=True):
    """A decision with its number in the record."""

    number: int
    outcome: DecisionOutcome
    request: str
    decision: Decision

    @property
    def moves(self) -> bool:
        """Whether the decision has moved the alias, or may be about to."""
        return self.outcome in {DecisionOutcome.INTENDED, DecisionOutcome.DONE}

    @property
    def summary(self) -> str:
        """Description of the decision in a line."""
        made = self.decision
        arrow = f"{made.before or 'none'} -> {made.after or 'none'}"
        dropped = f", without {', '.join(made.dropped)}" if made.dropped else ""
        return (
            f"#{self.number} {made.asked_at} {made.action} {arrow}{dropped}: {self.outcome}, asked by {made.asked_by}"
        )


def now() -> str:
    """Return the current time in the format of decisions."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_name(project: str) -> str:
    """Return the name of the registered model whose versions are a project's decisions."""
    return f"{project}-decisions"


def project_of(version: Version) -> str:
    """Return the project of a version.

    Raises:
        PromotionError: lingraft did not register the version.
    """
    if "project" not in version.tags:
        raise PromotionError(
            f"{version.title} has no tag 'project', so lingraft has not registered it. Register it by a pipeline."
        )
    return version.tags["project"]


def append(
    client: RetryingClient, project: str, decision: Decision, about: Version, outcome: DecisionOutcome
) -> Record:
    """Append a decision to the record, with the next number.

    Args:
        about: version that it is about; the record points at its logged model.
        outcome: `INTENDED` if the alias is moved next, else `REFUSED`.
    """
    name = record_name(project)
    request = uuid.uuid4().hex
    tags = {
        _BODY: decision.model_dump_json(),
        _ABOUT: decision.model,
        _REQUEST: request,
        _OUTCOME: outcome.value,
    }

    def get_or_create() -> int:
        """Return the number of the record of this request; create it unless an earlier attempt has."""
        mlflow_client = MlflowClient()
        if found := mlflow_client.search_model_versions(f"name = '{name}' and tags.`{_REQUEST}` = '{request}'"):
            return min(int(version.version) for version in found)
        # A server takes no logged model's URI without its id.
        created = mlflow_client.create_model_version(name, about.source, tags=tags, model_id=about.model_id)
        return int(created.version)

    require_model(client, name)
    return Record(number=client.call(get_or_create), outcome=outcome, request=request, decision=decision)


def complete(client: RetryingClient, project: str, record: Record, outcome: DecisionOutcome) -> None:
    """Set the final state of an intended decision."""
    client.api.set_model_version_tag(record_name(project), str(record.number), _OUTCOME, outcome)


def history(client: RetryingClient, project: str, model: str | None = None) -> list[Record]:
    """Return the decisions of a project, or about one of its models, in order.

    A request that was repeated because its answer was lost may have written two records: the first one counts.
    """
    about = f" and tags.{_ABOUT} = '{model}'" if model else ""
    by_request: dict[str, Record] = {}
    for version in search_versions(client, f"name = '{record_name(project)}'{about}"):
        record = _parse(record_name(project), int(version.version), dict(version.tags))
        by_request.setdefault(record.request, record)
    return list(by_request.values())


def missing_numbers(client: RetryingClient, project: str) -> list[int]:
    """Return the numbers of decisions that somebody has deleted; lingraft never deletes one."""
    found = {int(version.version) for version in search_versions(client, f"name = '{record_name(project)}'")}
    return sorted(set(range(1, max(found, default=0))) - found)


def last_number(records: Sequence[Record]) -> int:
    """Return the number of the last decision; 0 if there is none."""
    return max((record.number for record in records), default=0)


def effective_decisions(records: Sequence[Record]) -> list[Record]:
    """Return the decisions that move, or have moved, a model's alias; of two made at the same time the first.

    All readers of the record agree: the result follows from the numbers, and from the latest number each decision knew.
    """
    first: list[Record] = []
    for record in records:
        if record.moves and not superseded_by(record, first):
            first.append(record)
    return first


def promotions_in_effect(records: Sequence[Record]) -> list[Record]:
    """Return the promotions of a model that were not rolled back, the last one at the end."""
    carried_out = effective_decisions(records)
    undone = {record.decision.undoes for record in carried_out}
    return [each for each in carried_out if each.decision.action == "promote" and each.number not in undone]


def recorded_champion(found: Sequence[Version], records: Sequence[Record]) -> Version | None:
    """Return the champion by the record of decisions; the alias differs if somebody moved it by hand.

    Args:
        found: versions of the model that still exist.
    """
    decided = effective_decisions(records)
    number = decided[-1].decision.after if decided else None
    return next((version for version in found if version.number == number), None)


def accepted_fingerprints(client: RetryingClient, project: str) -> set[str]:
    """Return the fingerprints of all artifacts that were promoted in a project and not rolled back."""
    by_model: dict[str, list[Record]] = defaultdict(list)
    for record in history(client, project):
        by_model[record.decision.model].append(record)
    promotions = (each for records in by_model.values() for each in promotions_in_effect(records))
    return {each.decision.fingerprint for each in promotions if each.decision.fingerprint}


def superseded_by(record: Record, before: Sequence[Record]) -> Record | None:
    """Return the decision that supersedes `record`: one after the latest it knew, and before it; None without one."""
    return next((each for each in before if record.decision.knew < each.number < record.number), None)


def last_verdict(client: RetryingClient, model: str, fingerprint: str) -> GateVerdict | None:
    """Return the gate's last verdict on embeddings, for reports; None if there was no decision about this version."""
    version = next((each for each in versions_of(client, model) if each.fingerprint == fingerprint), None)
    if version is None:
        return None
    records = history(client, project_of(version), model)
    made = [each for each in records if each.decision.action == "promote" and each.decision.after == version.number]
    if not made:
        return None
    checks = made[-1].decision.checks
    promoted = made[-1].moves
    decisive = [check for check in checks if check.name not in _PRECONDITIONS] or checks
    return GateVerdict(
        model=model,
        version=version.number,
        promoted=promoted,
        reason=sentences(decisive) if promoted else refusal_reason(checks),
        run=version.run_id,
    )


def _parse(name: str, number: int, tags: dict[str, str]) -> Record:
    try:
        decision = Decision.model_validate_json(tags[_BODY])
        return Record(number=number, outcome=DecisionOutcome(tags[_OUTCOME]), request=tags[_REQUEST], decision=decision)
    except (KeyError, ValueError) as error:
        raise TrackingError(
            f"version {number} of {name!r} at {mlflow.get_tracking_uri()} is no decision of ours: {error}. "
            "Only lingraft writes there; delete what somebody else put there."
        ) from error
