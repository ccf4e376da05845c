"""Result of a search: the chosen depth and the reason, the cost, and Optuna's plots of the trials."""

import io
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState
from optuna.visualization import matplotlib as plots

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost
from lingraft.errors import TrainingError
from lingraft.search.trial import RECORD, Trainer
from lingraft.stages import results
from lingraft.stages.results import SearchResult, Trial

REASON = "reason"
"""Name of the attribute of a failed trial that says why."""
PAGE_FILE = "search.md"


def records(study: optuna.Study) -> list[Trial]:
    """Return the records of trials that have ended, each once."""
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    found = (Trial(**trial.user_attrs[RECORD]) for trial in ended if RECORD in trial.user_attrs)
    return list({trial.number: trial for trial in found}.values())


def write_result(study: optuna.Study, trainer: Trainer, out: Path) -> Artifact:
    """Write the result of a search whose trials have all ended."""
    trials = records(study)
    failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    failures = {
        f"depth {each.params['depth']}": each.user_attrs[REASON] for each in failed if REASON in each.user_attrs
    }
    if not trials:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in failures.items())
        raise TrainingError(f"no trial of the search could be trained: {reasons}")
    search = trainer.search
    minis = {depth: trainer.mini_model(depth) for depth in sorted({trial.depth for trial in trials})}
    result = SearchResult(
        language=search.language,
        primary=trainer.source.fingerprint,
        chosen=max(trials, key=lambda trial: (not trial.pruned, trial.score)).depth,
        trials=sorted(trials, key=lambda trial: (trial.depth, trial.number)),
        metric=search.metric,
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
    return results.save(result, out, facts, files=files)


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
    chosen = f"# {result.chosen} layers for {result.language}\n\n{result.reason}. {share}"
    return "\n".join([chosen, "", head, *rows, ""])
