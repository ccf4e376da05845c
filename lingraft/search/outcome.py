"""Result of a search: the chosen depth and the reason, the cost, and Optuna's plots of the trials."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState
from optuna.visualization import matplotlib as plots

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost
from lingraft.config.search import Goal
from lingraft.errors import TrainingError
from lingraft.search.space import describe, search_space
from lingraft.search.trial import RECORD, Trainer
from lingraft.stages import results
from lingraft.stages.results import FrontPoint, SearchResult, Trial

REASON = "reason"
"""Name of the attribute of a failed trial that says why."""
PAGE_FILE = "search.md"
_FEWEST_FOR_IMPORTANCE = 4
"""Fewest complete trials from which the importance of a parameter means anything."""


def records(study: optuna.Study) -> list[Trial]:
    """Return the records of trials that have ended, each once."""
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    found = (Trial(**trial.user_attrs[RECORD]) for trial in ended if RECORD in trial.user_attrs)
    return list({trial.number: trial for trial in found}.values())


def write_result(study: optuna.Study, trainer: Trainer, out: Path) -> Artifact:
    """Write the result of a search whose trials have all ended."""
    trials = records(study)
    failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    failures = {describe(each.params): each.user_attrs[REASON] for each in failed if REASON in each.user_attrs}
    if not trials:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in failures.items())
        raise TrainingError(f"no trial of the search could be trained: {reasons}")
    search = trainer.search
    front = pareto_front(trials)
    target = (search.target_score or search.target_share * front[-1].score) if search.goal is Goal.COMPUTE else None
    best, reason = _choose(trials, front, target)
    minis = {depth: trainer.mini_model(depth) for depth in sorted({trial.depth for trial in trials})}
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
        building={depth: mini.manifest.cost for depth, mini in minis.items() if mini},
        budget_flops=trainer.budget.flops,
        failures=failures,
    )
    facts = {
        "language": search.language,
        "aligned_with": result.primary,
        "data_hashes": trainer.data_hashes,
        "recipe": search.model_dump(mode="json"),
        "cost": _cost(trainer, result),
    }
    files = {"curves.png": _png(plots.plot_intermediate_values(study)), PAGE_FILE: _page(result).encode()}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(search_space(trainer.recipe)) > 1 and len(complete) >= _FEWEST_FOR_IMPORTANCE:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        files["importance.png"] = _png(plots.plot_param_importances(study, evaluator=evaluator))
    return results.save(result, out, facts, files=files)


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


def _choose(trials: Sequence[Trial], front: Sequence[FrontPoint], target: float | None) -> tuple[Trial, str]:
    """Return the best trial and the reason; with a target, that of the least compute to it."""
    by_score = max(trials, key=lambda trial: (not trial.pruned, trial.score))
    if target is None:
        return by_score, "the best score of those that used the whole budget"
    enough = next((point for point in front if point.score >= target), None)
    if enough is None:
        return by_score, f"the best score; none reached the target of {target:.2%} within the budget"
    return next(trial for trial in trials if trial.number == enough.trial), f"the least compute to {target:.2%}"


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


def _png(axes: Any) -> bytes:
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    axes.figure.savefig(content, format="png", bbox_inches="tight")
    plt.close(axes.figure)
    return content.getvalue()


def _page(result: SearchResult) -> str:
    """Return the result in Markdown."""
    rows = [
        f"| {trial.number} | {trial.depth} | {trial.flops:.3g} | {trial.score:.2%} | {'yes' if trial.pruned else ''} |"
        for trial in result.trials
    ]
    head = f"| trial | layers | FLOPs | {result.metric_title}, dev | stopped |\n|---|---|---|---|---|"
    share = f"The search took {result.flops:.3g} FLOPs, {result.flops / result.grid_flops:.0%} of the whole grid's."
    chosen = f"# {result.chosen} layers for {result.language}\n\nTrial {result.best}: {result.reason}. {share}"
    return "\n".join([chosen, "", head, *rows, ""])
