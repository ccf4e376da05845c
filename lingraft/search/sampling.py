"""Sampling of the next trial of a search over more than depth, with Optuna's sampler."""

import optuna
from optuna.trial import FrozenTrial, TrialState

from lingraft.config.search import Goal
from lingraft.search.shared_study import RECORD, SharedStudy, distributions_of
from lingraft.search.space import Params, params_key
from lingraft.stages.results import Trial

_DRAWS = 20
"""Number of draws that repeat tried parameters until a search of few choices counts as exhausted."""
_RANDOM_FIRST = 5


def sample_untried(shared: SharedStudy, seed: int) -> Params | None:
    """Return parameters that have not been tried; None if there seem to be none left.

    The same trials so far give the same parameters.

    Args:
        shared: the trials so far.
        seed: seed of the sampler.
    """
    tried = shared.tried()
    known = [_with_values(trial, shared.goal) for trial in shared.trials()]
    for draw in range(_DRAWS):
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=_RANDOM_FIRST, constant_liar=True, seed=seed + len(tried) + 1000 * draw
        )
        study = optuna.create_study(directions=shared.directions, sampler=sampler)
        study.add_trials(known)
        params: Params = study.ask(distributions_of(shared.choices)).params
        if params_key(params) not in tried:
            return params
    return None


def _with_values(trial: FrozenTrial, goal: Goal) -> FrozenTrial:
    """Give a pruned trial the values that a sampler needs: infinite compute, or FLOPs and score at its end."""
    if trial.state is not TrialState.PRUNED or goal is Goal.SCORE:
        return trial
    found = Trial(**trial.user_attrs[RECORD])
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE,
        params=trial.params,
        distributions=trial.distributions,
        values=[float("inf")] if goal is Goal.COMPUTE else [found.flops, found.score],
    )
