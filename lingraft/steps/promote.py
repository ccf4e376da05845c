"""How steps make versions champions: through the same gate and into the same record as everybody else."""

from lingraft import tracking
from lingraft.config.gate import Gate
from lingraft.console import say
from lingraft.errors import PromotionError
from lingraft.tracking.promotion.gate import refusal_reason
from lingraft.tracking.promotion.promote import PromotionResult, promote


def requester(stage: tracking.StageRun) -> str:
    """Who asks for a promotion, for the record."""
    return f"pipeline, run {stage.run_id}"


def promote_version(stage: tracking.StageRun, name: str, version: str, gate: Gate | None = None) -> PromotionResult:
    """Ask for a version to become champion.

    Raises:
        SupersededError: somebody else promoted a version at the same time, and was first.
        GateError: there is no evidence, or no primary to be aligned with.
        TrackingError: the registry refuses, or stays down.
    """
    decided = promote(stage.client, name, int(version), requester(stage), gate)
    if decided.moved:
        say(f"Version {version} of {name!r} is champion, in place of {decided.before or 'none'}.")
    return decided


def require_champion(stage: tracking.StageRun, name: str, version: str) -> None:
    """The same, of a model that a pipeline has just made to fit.

    Raises:
        PromotionError: it is refused all the same.
    """
    decided = promote_version(stage, name, version)
    if decided.after != int(version):
        raise PromotionError(f"version {version} of {name!r} is not promoted. {refusal_reason(decided.checks)}")
