"""Search space: the parameters of a trial as JSON values, under their names in the recipe."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import optuna

from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.search import Range
from lingraft.config.training import Adaptation

Params = Mapping[str, Any]
"""Parameters of one trial: its depth, and whatever else is searched."""
Choices = Mapping[str, Sequence[Any] | Range]
"""Values that each parameter is chosen from."""

_TRAINED = ("learning_rate", "mask_rate", "initialisation")


def search_space(recipe: Recipe) -> Choices:
    """Return the choices of every parameter that the recipe searches."""
    search = recipe.require_search()
    every = {
        "depth": recipe.searched_depths,
        "learning_rate": search.learning_rate,
        "mask_rate": search.mask_rate,
        "initialisation": tuple(map(str, search.initialisations)),
    }
    return {name: found for name, found in every.items() if found}


def planned_trials(recipe: Recipe) -> list[Params]:
    """Return the trials that run in any case: all combinations, or one a depth where [search] limits trials.

    The recipe's own depth comes first, then from shallow to deep.
    """
    choices = search_space(recipe)
    depths = sorted(recipe.searched_depths, key=lambda depth: (depth != recipe.adaptation.depth, depth))
    rest = {name: found for name, found in choices.items() if name != "depth"}
    if recipe.require_search().trials is not None:
        own = {name: _default_value(recipe, name, found) for name, found in rest.items()}
        return [{"depth": depth, **own} for depth in depths]
    combined = [dict(zip(rest, values, strict=True)) for values in itertools.product(*rest.values())]
    return [{"depth": depth, **others} for depth in depths for others in combined]


def _default_value(recipe: Recipe, name: str, found: Sequence[Any] | Range) -> Any:
    """The recipe's own value of a searched parameter, or the choice nearest to it."""
    value = getattr(recipe.adaptation, name)
    if isinstance(found, Range):
        return found.nearest(value)
    return str(value) if str(value) in found else found[0]


def suggest(trial: optuna.Trial, recipe: Recipe) -> Params:
    """Return the parameters of a trial: those that were planned for it, or those that Optuna expects most of."""
    return {
        name: trial.suggest_float(name, found.low, found.high, log=True)
        if isinstance(found, Range)
        else trial.suggest_categorical(name, found)
        for name, found in search_space(recipe).items()
    }


def trial_settings(recipe: Recipe, params: Params, steps: int) -> Adaptation:
    """Return the recipe's adaptation with a trial's parameters, for so many updates with a tenth of them as warm-up."""
    own = {name: params[name] for name in _TRAINED if name in params}
    if "initialisation" in own:
        own["initialisation"] = Initialisation(own["initialisation"])
    length = {"steps": steps, "log_every_steps": steps, "warmup_steps": steps // 10}
    return recipe.adaptation.model_copy(update=own | length)


def describe(params: Params) -> str:
    """Return the parameters as text for people."""
    depth, *rest = (f"{name.replace('_', ' ')} {_format_value(value)}" for name, value in params.items())
    return ", ".join([depth, *rest])


def _format_value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
