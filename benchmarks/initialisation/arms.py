"""The arms that are compared: each system from each start."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lingraft.comparison.plan import ALIGNMENT, MASKED, Arm, Comparison, comparison_of_arms
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.training import Adaptation, MiniBuilding
from lingraft.errors import RecipeError

WHOLE = "MINIJOINT, whole"
"""MINIJOINT's primary, adapted over all of its layers: what is lost to its further head, not to the mini-model."""
SYSTEMS = (System.BL_BASE, System.BL_SMALL, System.MINIPOST, System.MINIJOINT, WHOLE)
"""Names of what can be compared, beside MINIJOINT at further depths."""
_OVER = " over "
WITHOUT_CURVES = (MASKED, ALIGNMENT)
"""Tasks that are evaluated before and after adaptation only, unless others are asked for."""
_EARLY = (0.02, 0.06, 0.16)
_PARTS = 3
"""Checkpoints: after these shares of the updates, where curves are steep, and at equal distances."""
_LONGER = 4
"""Updates, and rate, that rows take which do not start aligned, in terms of what aligned ones take (decision 20)."""
_MINI_SHARE = 0.3
"""Updates of step 1b per update of pretraining."""


class Start(StrEnum):
    """Initialisation of a language's rows, with its resource."""

    OVERLAP = "overlap"
    """The paper's: rows of shared pieces are copied."""
    TEXT = "text"
    """Aligned, without any resource."""
    DICTIONARY = "dictionary"
    """Aligned by a dictionary."""
    PAIRS = "pairs"
    """Aligned by sentence pairs."""

    @property
    def initialisation(self) -> Initialisation:
        """Initialisation by its name in recipes."""
        return Initialisation.OVERLAP if self is Start.OVERLAP else Initialisation.ALIGNED


Resources = Mapping[Start, Mapping[str, Path]]
"""Files by what they are and by language; a start that is not in it needs none."""


def compared(
    recipe: Recipe,
    starts: Iterable[Start],
    systems: Sequence[str],
    seeds: Sequence[int],
    resources: Resources,
    without_curves: Iterable[str] = WITHOUT_CURVES,
    depths: Sequence[int] = (),
) -> Comparison:
    """Plan the comparison.

    Args:
        recipe: whose MINIJOINT adapts over [adaptation] depth.
        starts: for each language, those that have no resource for it are left out.
        systems: of `SYSTEMS`.
        seeds: of pretraining and adaptation; each pretrains primaries of its own.
        resources: dictionaries and sentence pairs.
        without_curves: tasks that are evaluated before and after adaptation only.
        depths: further ones of MINIJOINT, with a primary each whose lower head is there (figure 4).

    Raises:
        RecipeError: a depth is the recipe's own, or no depth of a mini-model.
    """
    layers, own = recipe.encoder.layers, recipe.adaptation.depth
    if wrong := [depth for depth in depths if not 0 < depth < layers or depth == own]:
        raise RecipeError(f"further depths are {wrong}, but must be from 1 to {layers - 1}, and not the recipe's {own}")
    sized = _with_mini(recipe)
    arms = [
        Arm(made, start)
        for seed in seeds
        for start in starts
        if (found := _starting(sized, start, resources)) is not None
        for made in (
            *(_recipe_of(found, name, seed) for name in systems),
            *(_recipe_of(_with_depth(found, depth), System.MINIJOINT, seed) for depth in depths),
        )
    ]
    made = comparison_of_arms(sized, arms)
    primaries = tuple(replace(one, task_layers=(one.layers,)) for one in made.primaries)
    return replace(made, primaries=primaries, measures_alignment=True, without_curves=frozenset(without_curves))


def _with_mini(recipe: Recipe) -> Recipe:
    """The recipe with a step 1b, unless it has its own."""
    pretraining = recipe.pretraining
    shared = pretraining.model_dump(include={*MiniBuilding.model_fields}) | {
        "steps": max(1, round(_MINI_SHARE * pretraining.steps)),
        "warmup_steps": round(_MINI_SHARE * pretraining.warmup_steps),
    }
    mini = recipe.mini or MiniBuilding(**shared)
    return recipe.model_copy(update={"mini": mini, "search": None, "paper": None})


def _starting(recipe: Recipe, start: Start, resources: Resources) -> Recipe | None:
    """The recipe with a start, for the languages that have what it needs; None if there are none."""
    adaptation = _scheduled(recipe.adaptation, start)
    files = {language: str(path) for language, path in resources.get(start, {}).items()}
    targets = tuple(one for one in recipe.targets if start not in (Start.DICTIONARY, Start.PAIRS) or one in files)
    if not targets:
        return None
    resource = {
        "parallel": files if start is Start.PAIRS else {},
        "dictionary": files if start is Start.DICTIONARY else {},
    }
    alignment = recipe.alignment.model_copy(update=resource)
    return recipe.model_copy(update={"adaptation": adaptation, "alignment": alignment, "targets": targets})


def _scheduled(adaptation: Adaptation, start: Start) -> Adaptation:
    """The settings under which rows of a start learn best, and with which a learning curve is kept.

    Those of the recipe are for its own initialisation.
    """
    aligned = Initialisation.ALIGNED
    times = _LONGER ** ((adaptation.initialisation is aligned) - (start.initialisation is aligned))
    steps = max(1, round(times * adaptation.steps))
    changes: dict[str, Any] = {
        "initialisation": start.initialisation,
        "steps": steps,
        "learning_rate": times * adaptation.learning_rate,
        "warmup_steps": round(times * adaptation.warmup_steps),
    }
    if not adaptation.checkpoint_steps:
        early = sorted({max(1, round(share * steps)) for share in _EARLY})
        changes |= {"checkpoint_every_steps": -(-steps // _PARTS), "early_checkpoints": (*early,)}
    return adaptation.model_copy(update=changes)


def system_of(arm: Arm, comparison: Comparison) -> str:
    """Return the name of what an arm compares: one of `SYSTEMS`, or MINIJOINT over so many layers."""
    if arm.system is not System.MINIJOINT or arm.depth == comparison.recipe.adaptation.depth:
        return str(arm.system)
    return WHOLE if arm.depth == arm.recipe.encoder.layers else f"{arm.system}{_OVER}{arm.depth}"


def in_order(systems: Iterable[str]) -> list[str]:
    """Sort names of what is compared as `SYSTEMS` are, and MINIJOINT's further depths after it."""

    def place(name: str) -> tuple[int, int]:
        system, _, depth = name.partition(_OVER)
        return SYSTEMS.index(system), int(depth or 0)

    return sorted({*systems}, key=place)


def is_over_further_depth(system: str) -> bool:
    """Return whether it is MINIJOINT at another depth than the comparison's, all layers included."""
    return _OVER in system or system == WHOLE


def _with_depth(recipe: Recipe, depth: int) -> Recipe:
    """The recipe with a mini-model, and a lower head, of another depth."""
    encoder = recipe.encoder.model_copy(update={"mlm_heads": (depth, recipe.encoder.layers)})
    adaptation = recipe.adaptation.model_copy(update={"depth": depth})
    return recipe.model_copy(update={"encoder": encoder, "adaptation": adaptation})


def _recipe_of(recipe: Recipe, name: str, seed: int) -> Recipe:
    layers = recipe.encoder.layers
    if name == WHOLE:
        made, changes = recipe.for_system(System.MINIJOINT, layers), {"depth": layers, "seed": seed}
    else:
        made, changes = recipe.for_system(System(name)), {"seed": seed}
    adaptation = made.adaptation.model_copy(update=changes)
    pretraining = made.pretraining.model_copy(update={"seed": seed})
    return made.model_copy(update={"adaptation": adaptation, "pretraining": pretraining})
