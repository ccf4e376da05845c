"""The next trial of a search over more than depth, where Optuna expects most of it."""

import optuna
from optuna.trial import FrozenTrial, TrialState

from lingraft.config.search import Goal
from lingraft.search.shared_study import RECORD, SharedStudy, distributions_of
from lingraft.search.space import Params, params_key
from lingraft.stages.results import Trial

_DRAWS = 20
"""Of parameters that have been tried before, until a search of few choices is taken to be exhausted."""
_RANDOM_FIRST = 5


def sample_untried(shared: SharedStudy, seed: int) -> Params | None:
    """Parameters that have not been tried; the same for the same trials so far. None if there seem to be no more.

    Args:
        shared: the trials so far.
        seed: of the sampler.
    """
    tried = shared.tried()
    for draw in range(_DRAWS):
        study = _study_copy(shared, seed + len(tried) + 1000 * draw)
        params: Params = study.ask(distributions_of(shared.choices)).params
        if params_key(params) not in tried:
            return params
    return None


def _study_copy(shared: SharedStudy, seed: int) -> optuna.Study:
    """A copy of the study in memory, as a sampler can read it: with values of stopped trials."""
    sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM_FIRST, constant_liar=True, seed=seed)
    study = optuna.create_study(directions=shared.directions, sampler=sampler)
    study.add_trials([_with_values(trial, shared.goal) for trial in shared.trials()])
    return study


def _with_values(trial: FrozenTrial, goal: Goal) -> FrozenTrial:
    """A trial that was stopped has not reached its target, or what it got for what it had spent."""
    if trial.state is not TrialState.PRUNED or goal is Goal.SCORE:
        return trial
    found = Trial(**trial.user_attrs[RECORD])
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE,
        params=trial.params,
        distributions=trial.distributions,
        values=[float("inf")] if goal is Goal.COMPUTE else [found.flops, found.score],
    )
