"""Promotion by steps, through the same gate and record of decisions as promotion by people."""

from lingraft import tracking
from lingraft.config.gate import Gate
from lingraft.console import say
from lingraft.errors import PromotionError
from lingraft.tracking.promotion.gate import refusal_reason
from lingraft.tracking.promotion.promote import PromotionResult, promote


def requester(stage: tracking.StageRun) -> str:
    """Return the requester of a promotion, for the record of decisions."""
    return f"pipeline, run {stage.run_id}"


def promote_version(stage: tracking.StageRun, name: str, version: str, gate: Gate | None = None) -> PromotionResult:
    """Promote a version if it passes the gate, and log the result.

    Raises:
        SupersededError: another version was promoted at the same time, and was first.
        GateError: there is no evidence, or no primary to be aligned with.
        TrackingError: the registry refuses, or stays down.
    """
    decided = promote(stage.client, name, int(version), requester(stage), gate)
    if decided.moved:
        say(f"Version {version} of {name!r} is champion, in place of {decided.before or 'none'}.")
    return decided


def require_champion(stage: tracking.StageRun, name: str, version: str) -> None:
    """Promote a version that the pipeline has just made for the current primary.

    Raises:
        PromotionError: the gate refuses it.
    """
    decided = promote_version(stage, name, version)
    if decided.after != int(version):
        raise PromotionError(f"version {version} of {name!r} is not promoted. {refusal_reason(decided.checks)}")
