"""Search space: the parameters of a trial as JSON values, under their names in the recipe."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
        "budget_share": search.budget_shares,
    }
    return {name: found for name, found in every.items() if found}


def params_key(params: Params) -> str:
    """Return a key that is equal for equal parameters."""
    return json.dumps(dict(params), sort_keys=True)


def planned_trials(recipe: Recipe, depths: Iterable[int]) -> list[Params]:
    """Return the trials that run in any case, in order: all combinations, or one a depth where [search] limits trials.

    Args:
        recipe: recipe with a [search] section.
        depths: depths in the order in which they are tried.
    """
    choices = search_space(recipe)
    rest = {name: found for name, found in choices.items() if name != "depth"}
    if recipe.require_search().trials is not None:
        own = {name: _default_value(recipe, name, found) for name, found in rest.items()}
        return [{"depth": depth, **own} for depth in depths]
    combined = [dict(zip(rest, values, strict=True)) for values in itertools.product(*rest.values())]
    return [{"depth": depth, **others} for depth in depths for others in combined]


def _default_value(recipe: Recipe, name: str, found: Sequence[Any] | Range) -> Any:
    """The recipe's own value of a searched parameter, or the choice nearest to it."""
    if name == "budget_share":
        return max(found)
    value = getattr(recipe.adaptation, name)
    if isinstance(found, Range):
        return found.nearest(value)
    return str(value) if str(value) in found else found[0]


def trial_settings(recipe: Recipe, params: Params, steps: int) -> Adaptation:
    """Return the recipe's adaptation with a trial's parameters, for so many updates with a tenth of them as warm-up.

    Nothing but its budget and the search's pruning ends a trial.
    """
    own = {name: params[name] for name in _TRAINED if name in params}
    if "initialisation" in own:
        own["initialisation"] = Initialisation(own["initialisation"])
    length = {"steps": steps, "log_every_steps": steps, "warmup_steps": steps // 10}
    ends = {"judge_every_steps": 0, "patience": 0, "flop_budget": None}
    return recipe.adaptation.model_copy(update=own | length | ends)


def describe(params: Params) -> str:
    """Return the parameters as text for people."""
    depth, *rest = (f"{name.replace('_', ' ')} {_format_value(value)}" for name, value in params.items())
    return ", ".join([depth, *rest])


def _format_value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
