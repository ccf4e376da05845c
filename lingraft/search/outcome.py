"""Result of a search: the chosen depth and the reason, the cost, and the cost without a search."""

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost
from lingraft.config.search import Goal
from lingraft.errors import MissingExtraError, TrainingError
from lingraft.search import page
from lingraft.search.shared_study import SharedStudy
from lingraft.search.space import search_space
from lingraft.search.trial import Trainer
from lingraft.search.trial_order import TrialOrder
from lingraft.stages import results
from lingraft.stages.results import FrontPoint, SearchResult, Trial

_FEWEST_FOR_IMPORTANCE = 4
"""Fewest complete trials from which the importance of a parameter means anything."""


def require_plotting() -> None:
    """Refuse a search before long work if its plots could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "search")


def write_result(study: SharedStudy, trainer: Trainer, order: TrialOrder, target: float | None, out: Path) -> Artifact:
    """Write the result of a search whose trials have all ended."""
    trials = [trial for _, trial in study.records()]
    failures = study.failures()
    if not trials:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in failures.items())
        raise TrainingError(f"no trial of the search could be trained: {reasons}")
    search = trainer.search
    front = pareto_front(trials)
    best, reason = _choose(search.goal, trials, front, search.target_share, target)
    minis = {depth: trainer.mini_models.get_or_build(depth) for depth in sorted({trial.depth for trial in trials})}
    result = SearchResult(
        language=search.language,
        primary=trainer.source.fingerprint,
        chosen=best.depth,
        trials=sorted(trials, key=lambda trial: (trial.depth, trial.number)),
        goal=search.goal,
        metric=search.metric,
        best=best.number,
        reason=reason,
        target=target,
        front=front,
        importance=_importance(study, len(search_space(trainer.recipe))),
        building={depth: mini.manifest.cost for depth, mini in minis.items() if mini},
        budget_flops=trainer.budget.flops,
        standard_flops=trainer.budget.standard_flops,
        order=order.reason,
        failures=failures,
    )
    facts = {
        "language": search.language,
        "aligned_with": result.primary,
        "data_hashes": trainer.data_hashes,
        "recipe": search.model_dump(mode="json"),
        "cost": _cost(trainer, result),
    }
    return results.save(result, out, facts, files=page.render_files(result))


def pareto_front(trials: Sequence[Trial]) -> list[FrontPoint]:
    """Return the points at which no other trial had spent as little for as good a score, from cheap to expensive.

    Intermediate evaluations count: a user who stops there has spent no more. Points before any update do not count.
    """
    points = [
        FrontPoint(trial=trial.number, depth=trial.depth, flops=flops, score=score)
        for trial in trials
        for flops, score in trial.scores_by_flops
        if flops
    ]
    front: list[FrontPoint] = []
    for point in sorted(points, key=lambda point: (point.flops, -point.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def _choose(
    goal: Goal, trials: Sequence[Trial], front: Sequence[FrontPoint], share: float, target: float | None
) -> tuple[Trial, str]:
    """Return the best trial for a goal, and the reason."""
    by_score = max(trials, key=lambda trial: (not trial.pruned, trial.score))
    if goal is Goal.SCORE:
        return by_score, "the best score of those that used the whole budget"
    if goal is Goal.COMPUTE:
        there = [trial for trial in trials if trial.reached_flops is not None]
        if not there:
            return by_score, f"the best score; none reached the target of {target or 0:.2%} within the budget"
        least = min(there, key=lambda trial: (trial.reached_flops or 0.0, -trial.score))
        return least, f"the least compute to {target or 0:.2%}"
    enough = next(point for point in front if point.score >= share * front[-1].score)
    trial = next(trial for trial in trials if trial.number == enough.trial)
    return trial, f"the cheapest point of the front with {share:.0%} of its best score"


def _importance(study: SharedStudy, parameters: int) -> dict[str, float]:
    """Share of each parameter in the differences of scores among complete trials; empty if only depth was searched."""
    whole = [trial for trial in study.trials() if trial.state is optuna.trial.TrialState.COMPLETE]
    if parameters < 2 or len(whole) < _FEWEST_FOR_IMPORTANCE:
        return {}
    by_score = optuna.create_study(direction="maximize")
    by_score.add_trials([_with_last_score(trial) for trial in whole])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(by_score, evaluator=evaluator))


def _with_last_score(trial: optuna.trial.FrozenTrial) -> optuna.trial.FrozenTrial:
    score = trial.intermediate_values[max(trial.intermediate_values)]
    return optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, value=score)


def _cost(trainer: Trainer, result: SearchResult) -> Cost:
    """Cost of all trials together, and of step 1b at every depth."""
    recipe = trainer.recipe
    building = result.building.values()
    block_tokens = recipe.adaptation.batch_blocks * recipe.encoder.block_tokens
    return Cost(
        steps=sum(trial.steps for trial in result.trials) + sum(cost.steps for cost in building),
        tokens=sum(trial.steps for trial in result.trials) * block_tokens + sum(cost.tokens for cost in building),
        flops=result.flops,
        elapsed_s=sum(trial.elapsed_s for trial in result.trials) + sum(cost.elapsed_s for cost in building),
    )
