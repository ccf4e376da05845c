"""The record of decisions beside a project's models: appended to, completed once, never rewritten.

Every decision is a version of the registered model `<project>-decisions`, because MLflow numbers versions by itself, in
one transaction, and never gives a number twice, not even one that was deleted: whoever gets the lower number came
first, and all who look agree. A decision is written with its number at once, in one request.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Literal

import mlflow
import pydantic
from mlflow.tracking import MlflowClient

from lingraft.errors import TrackingError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.logged_models import MODELS
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES, AllowedChanges
from lingraft.tracking.promotion.gate import Check
from lingraft.tracking.registry import require_model
from lingraft.tracking.versions import Version, search_versions

_BODY, _OUTCOME, _REQUEST, _ABOUT = "decision", "outcome", "lingraft.request", "about"
Action = Literal["promote", "rollback"]


class DecisionOutcome(StrEnum):
    """What became of a decision."""

    INTENDED = "intended"
    """Written down, and the alias may or may not have been moved."""
    DONE = "done"
    REFUSED = "refused"
    """By the gate; the alias was not touched."""
    SUPERSEDED = "overtaken"
    """Another decision about the model, made at the same time, has the lower number."""


class Decision(pydantic.BaseModel):
    """What was decided about a model, by whom, and why."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    action: Action
    model: str
    asked_by: str
    """A user, or a pipeline and its run."""
    asked_at: str
    """ISO 8601, UTC, by the clock of whoever asked."""
    before: int | None
    """Version that was champion."""
    after: int | None
    """Version that is to be champion; None to have none."""
    fingerprint: str | None
    """Of the artifact that is to be champion."""
    knew: int
    """Number of the last decision about the model that was known when this one was made; 0 if there was none."""
    undoes: int | None = None
    """Number of the decision that a rollback takes back."""
    checks: tuple[Check, ...] = ()
    languages: tuple[str, ...] = ()
    """Of the bundle that is to be champion; none of other artifacts."""
    dropped: tuple[str, ...] = ()
    """Languages that leave production by this decision, each named by whoever asked."""
    allowed: AllowedChanges = NO_CHANGES


class Record(pydantic.BaseModel, frozen=True):
    """A decision with its place in the record."""

    number: int
    outcome: DecisionOutcome
    request: str
    decision: Decision

    @property
    def moves(self) -> bool:
        """Whether it is, or may be, about to move the alias."""
        return self.outcome in {DecisionOutcome.INTENDED, DecisionOutcome.DONE}

    @property
    def says(self) -> str:
        """In a line."""
        made = self.decision
        arrow = f"{made.before or 'none'} -> {made.after or 'none'}"
        dropped = f", without {', '.join(made.dropped)}" if made.dropped else ""
        return (
            f"#{self.number} {made.asked_at} {made.action} {arrow}{dropped}: {self.outcome}, asked by {made.asked_by}"
        )


def now() -> str:
    """The time, as decisions have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_name(project: str) -> str:
    """Name of the model whose versions are a project's decisions."""
    return f"{project}-decisions"


def append(
    client: RetryingClient, project: str, decision: Decision, about: Version, outcome: DecisionOutcome
) -> Record:
    """Write a decision down, with the next number.

    Args:
        client: MLflow, with retries.
        project: whose record it is.
        decision: what was decided.
        about: the version that it is about, whose logged model the record points at.
        outcome: `INTENDED` if the alias is to be moved next, else `REFUSED`.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    name, request = record_name(project), uuid.uuid4().hex
    client.call(partial(require_model, name))
    number = client.call(partial(_write, name, request, decision, about, outcome))
    return Record(number=number, outcome=outcome, request=request, decision=decision)


def complete(client: RetryingClient, project: str, record: Record, outcome: DecisionOutcome) -> None:
    """Say what became of a decision that was intended."""
    client.call(
        partial(MlflowClient().set_model_version_tag, record_name(project), str(record.number), _OUTCOME, outcome)
    )


def history(client: RetryingClient, project: str, model: str | None = None) -> list[Record]:
    """Decisions of a project, or about one of its models, in their order.

    A request that was repeated because its answer was lost may have been written twice: the first one counts.

    Raises:
        TrackingError: the registry refuses, stays down, or holds a record that is not one of ours.
    """
    about = f" and tags.{_ABOUT} = '{model}'" if model else ""
    found = search_versions(client, f"name = '{record_name(project)}'{about}")
    by_request: dict[str, Record] = {}
    for version in found:
        record = _parse(record_name(project), int(version.version), dict(version.tags))
        by_request.setdefault(record.request, record)
    return list(by_request.values())


def missing_numbers(client: RetryingClient, project: str) -> list[int]:
    """Numbers that were given and are gone: somebody has deleted what is never deleted here."""
    found = {int(version.version) for version in search_versions(client, f"name = '{record_name(project)}'")}
    return sorted(set(range(1, max(found, default=0))) - found)


def effective_decisions(records: Sequence[Record]) -> list[Record]:
    """Decisions about one model that move, or have moved, its alias; of two made at the same time the first.

    Everybody who reads the record comes to the same: it follows from numbers and from what each decision knew of.
    """
    first: list[Record] = []
    for record in records:
        if record.moves and not superseded_by(record, first):
            first.append(record)
    return first


def promotions_in_effect(records: Sequence[Record]) -> list[Record]:
    """Promotions of one model that nobody has taken back, the last one at the end."""
    carried_out = effective_decisions(records)
    undone = {record.decision.undoes for record in carried_out}
    return [each for each in carried_out if each.decision.action == "promote" and each.number not in undone]


def dropped_languages(records: Sequence[Record]) -> dict[str, Decision]:
    """Languages that left a bundle's champion because somebody named them, and have not come back since.

    Returns:
        The decision by which each left.
    """
    dropped: dict[str, Decision] = {}
    for decision in (record.decision for record in effective_decisions(records)):
        dropped = {name: by for name, by in dropped.items() if name not in decision.languages}
        dropped |= dict.fromkeys(decision.dropped, decision)
    return dropped


def superseded_by(record: Record, before: Sequence[Record]) -> Record | None:
    """The decision that came between a decision and what it knew; None if nothing did."""
    between = (each for each in before if record.decision.knew < each.number < record.number)
    return next(between, None)


def _write(name: str, request: str, decision: Decision, about: Version, outcome: DecisionOutcome) -> int:
    """The number of the record with this mark, which is made unless an earlier attempt has."""
    mlflow_client = MlflowClient()
    found = mlflow_client.search_model_versions(f"name = '{name}' and tags.`{_REQUEST}` = '{request}'")
    if found:
        return min(int(version.version) for version in found)
    body = {_BODY: decision.model_dump_json(), _ABOUT: decision.model, _REQUEST: request, _OUTCOME: outcome.value}
    model_id = about.source.removeprefix(MODELS)  # a server takes no logged model's URI without it
    return int(mlflow_client.create_model_version(name, about.source, tags=body, model_id=model_id).version)


def _parse(name: str, number: int, tags: dict[str, str]) -> Record:
    try:
        decision = Decision.model_validate_json(tags[_BODY])
        return Record(number=number, outcome=DecisionOutcome(tags[_OUTCOME]), request=tags[_REQUEST], decision=decision)
    except (KeyError, ValueError) as error:
        raise TrackingError(
            f"version {number} of {name!r} at {mlflow.get_tracking_uri()} is no decision of ours: {error}. "
            "Only lingraft writes there; delete what somebody else put there."
        ) from error
