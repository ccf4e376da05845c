"""What the gate decided about embeddings, read back from the registry's record of decisions."""

from lingraft.reports.run.records import Verdict
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.gate import refusal_reason
from lingraft.tracking.promotion.promote import project_of
from lingraft.tracking.versions import versions_of

_PRECONDITIONS = ("aligned", "parity")
"""Checks that say nothing of how good embeddings are; shown only where they fail."""


def last_verdict(client: RetryingClient, model: str, fingerprint: str) -> Verdict | None:
    """The last verdict on a version; None if no version has this content, or nothing was decided about it.

    Args:
        client: MLflow, with retries.
        model: registered embeddings.
        fingerprint: of the version's artifact.

    Raises:
        TrackingError: the registry refuses, or stays down for as long as it is waited for.
    """
    version = next((each for each in versions_of(client, model) if each.fingerprint == fingerprint), None)
    if version is None:
        return None
    records = decisions.history(client, project_of(version), model)
    made = [each for each in records if each.decision.action == "promote" and each.decision.after == version.number]
    if not made:
        return None
    checks, promoted = made[-1].decision.checks, made[-1].moves
    decisive = [check for check in checks if check.name not in _PRECONDITIONS] or checks
    return Verdict(
        model=model,
        version=version.number,
        promoted=promoted,
        refusal_reason=" ".join(f"{check.says}." for check in decisive) if promoted else refusal_reason(checks),
        run=version.run_id,
    )
