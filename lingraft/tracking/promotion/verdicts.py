"""Verdicts of the gate on embeddings, read from the record of decisions for reports."""

from lingraft.reports.run.records import GateVerdict
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.gate import refusal_reason
from lingraft.tracking.promotion.promote import project_of
from lingraft.tracking.versions import versions_of

_PRECONDITIONS = ("aligned", "parity")
"""Checks that do not measure quality; a verdict shows them only if they fail."""


def last_verdict(client: RetryingClient, model: str, fingerprint: str) -> GateVerdict | None:
    """Return the last verdict on a version; None if no version has this fingerprint, or there is no decision about it.

    Args:
        client: MLflow, with retries.
        model: registered embeddings.
        fingerprint: fingerprint of the version's artifact.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    version = next((each for each in versions_of(client, model) if each.fingerprint == fingerprint), None)
    if version is None:
        return None
    records = decisions.history(client, project_of(version), model)
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
        reason=" ".join(f"{check.says}." for check in decisive) if promoted else refusal_reason(checks),
        run=version.run_id,
    )
