"""Plan of the paper's comparison: everything that is pretrained, finetuned, adapted and evaluated, each once (sections
3 to 5).

A primary is identified by its shape and pretraining seed, so that systems share one where they can: BL_BASE and
MINIPOST have the same, BL_SMALL a shallow one, MINIJOINT one with all its heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.tasks import Task
from lingraft.errors import RecipeError

Planned = TypeVar("Planned")

MASKED = "masked"
"""Name of the comparison's own task: prediction of masked tokens, without examples or finetuning."""
ALIGNMENT = "alignment"
"""Name of a further task without labels: retrieval of counterparts in the source by hidden states of the top layer."""


@dataclass(frozen=True)
class FinetuningRun:
    """Finetuning of a primary, or of its mini-model, on one task with one seed."""

    task: str
    layers: int
    """Number of bottom layers of the primary that are finetuned."""
    seed: int

    @property
    def key(self) -> str:
        """Unique key among a primary's finetunings; also its path within their folder."""
        return f"{self.task}/{self.layers}-layers/seed-{self.seed}"

    def path_in(self, folder: Path) -> Path:
        """Return its folder among a primary's finetunings."""
        return folder / self.key


@dataclass(frozen=True)
class Arm:
    """A system at one depth, on a primary of one pretraining seed; every language is adapted by it."""

    recipe: Recipe
    """Recipe with that system, depth and seed."""
    start: str = ""
    """Name of the initialisation where a comparison has more than one; the recipe's [adaptation] and [alignment] hold
    its settings."""

    @property
    def system(self) -> System:
        """System of the arm."""
        return self.recipe.system

    @property
    def depth(self) -> int:
        """Number of bottom layers of the primary that embeddings are learned over."""
        return self.recipe.adaptation.depth

    @property
    def seed(self) -> int:
        """Pretraining seed."""
        return self.recipe.require_pretraining().seed

    @property
    def name(self) -> str:
        """Unique name, in one word."""
        start = f"-{self.start}" if self.start else ""
        return f"{self.system.lower().replace('_', '-')}-{self.depth}-seed-{self.seed}{start}"

    @property
    def title(self) -> str:
        """Name of the arm for people."""
        start = f", from {self.start}" if self.start else ""
        return f"{self.system} at depth {self.depth}, pretraining seed {self.seed}{start}"

    @property
    def primary(self) -> str:
        """Name of the arm's primary."""
        shape = self.recipe.primary_shape
        heads = "-".join(map(str, shape.mlm_heads))
        return f"{shape.layers}-layers-heads-{heads}-seed-{self.seed}"


@dataclass(frozen=True)
class PlannedPrimary:
    """One pretraining, and the models finetuned from it."""

    name: str
    arms: tuple[Arm, ...]
    """Arms that adapt languages to it."""
    task_layers: tuple[int, ...]
    """Depths of its models that learn tasks: its own, and that of MINIJOINT's mini-model (table 5)."""

    @property
    def recipe(self) -> Recipe:
        """Recipe of one of its systems; they agree in everything that pretraining and finetuning read."""
        return self.arms[0].recipe

    def arm_with_start(self, start: str) -> Arm:
        """Return the arm under whose recipe initial embeddings of a start are written, for all arms with that start."""
        return next(arm for arm in self.arms if arm.start == start)

    @property
    def seed(self) -> int:
        """Pretraining seed."""
        return self.arms[0].seed

    @property
    def layers(self) -> int:
        """Number of layers of the whole primary."""
        return self.recipe.primary_shape.layers

    @property
    def title(self) -> str:
        """Name of the primary for people."""
        systems = " and ".join(self.systems_over(self.layers))
        return f"the primary of {systems}, pretraining seed {self.seed}"

    @property
    def finetunings(self) -> tuple[FinetuningRun, ...]:
        """Finetunings of every task with every seed, for each model that learns tasks."""
        return tuple(
            FinetuningRun(task.name, layers, seed)
            for layers in self.task_layers
            for task in self.recipe.tasks
            for seed in task.finetuning.seeds
        )

    def finetuning(self, word: str) -> FinetuningRun:
        """Return a finetuning by its key.

        Raises:
            RecipeError: the recipe's comparison has no such finetuning.
        """
        return _lookup(word, {one.key: one for one in self.finetunings}, "finetuning")

    def systems_over(self, layers: int) -> tuple[System, ...]:
        """Return the systems whose model of so many layers learns tasks; a mini-model that does is MINIJOINT's."""
        systems = dict.fromkeys(arm.system for arm in self.arms)
        return tuple(system for system in systems if layers == self.layers or system is System.MINIJOINT)


@dataclass(frozen=True)
class Comparison:
    """All arms and primaries of a comparison."""

    recipe: Recipe
    arms: tuple[Arm, ...]
    primaries: tuple[PlannedPrimary, ...]
    measures_alignment: bool = False
    """Whether languages are evaluated on `ALIGNMENT` as well."""
    without_curves: frozenset[str] = frozenset()
    """Tasks, `MASKED` and `ALIGNMENT` among them, that are evaluated at the first and the last checkpoint only."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that at least one arm is evaluated on."""
        return tuple(task for task in self.recipe.tasks if any(task in arm.recipe.tasks for arm in self.arms))

    def by_seed(self) -> "dict[int, Comparison]":
        """Return the comparison by pretraining seed, the main one first; the parts are independent."""
        return {
            seed: replace(
                self,
                arms=tuple(arm for arm in self.arms if arm.seed == seed),
                primaries=tuple(one for one in self.primaries if one.seed == seed),
            )
            for seed in dict.fromkeys(arm.seed for arm in self.arms)
        }

    def arm(self, name: str) -> Arm:
        """Return an arm by its name.

        Raises:
            RecipeError: the recipe's comparison has no such arm.
        """
        return _lookup(name, {arm.name: arm for arm in self.arms}, "arm")

    def primary(self, name: str) -> PlannedPrimary:
        """Return a primary by its name.

        Raises:
            RecipeError: the recipe's comparison has no such primary.
        """
        return _lookup(name, {primary.name: primary for primary in self.primaries}, "primary")


def plan_comparison(recipe: Recipe) -> Comparison:
    """Return the plan of a recipe's comparison.

    Where [adaptation] names no checkpoints, the first and the last update are evaluated.

    Raises:
        RecipeError: the recipe has no [paper], or a task has the name of the comparison's own.
    """
    if recipe.paper is None:
        raise RecipeError("the recipe has no [paper], which says what is compared. Add one, such as 'systems = [...]'.")
    if MASKED in {task.name for task in recipe.tasks}:
        raise RecipeError(f"no task can be called {MASKED!r}: the comparison has that one itself. Choose another name.")
    arms = [
        Arm(_recipe_for(recipe, system, depth, seed))
        for seed in recipe.paper.pretraining_seeds
        for system in recipe.paper.systems
        for depth in _depths(recipe, system)
    ]
    return comparison_of_arms(recipe, arms)


def comparison_of_arms(recipe: Recipe, arms: Sequence[Arm]) -> Comparison:
    """Return the comparison of some arms, with each primary that they need once."""
    by_primary: dict[str, list[Arm]] = {}
    for arm in arms:
        by_primary.setdefault(arm.primary, []).append(arm)
    primaries = (PlannedPrimary(name, (*its,), _task_layers(recipe, its)) for name, its in by_primary.items())
    return Comparison(recipe, (*arms,), (*primaries,))


def _recipe_for(recipe: Recipe, system: System, depth: int, seed: int) -> Recipe:
    pretraining = recipe.require_pretraining().model_copy(update={"seed": seed})
    every = recipe.adaptation.checkpoint_every_steps
    if not recipe.adaptation.checkpoint_steps:
        every = recipe.adaptation.steps
    adaptation = recipe.adaptation.model_copy(update={"checkpoint_every_steps": every})
    changed = recipe.model_copy(update={"pretraining": pretraining, "adaptation": adaptation})
    return changed.for_system(system, depth)


def _depths(recipe: Recipe, system: System) -> list[int]:
    """The recipe's depth, and for MINIJOINT those of table 4 too."""
    further = recipe.paper.depths if recipe.paper and system is System.MINIJOINT else ()
    return sorted({recipe.adaptation.depth, *further})


def _task_layers(recipe: Recipe, arms: list[Arm]) -> tuple[int, ...]:
    layers = {arms[0].recipe.primary_shape.layers}
    if any(arm.system is System.MINIJOINT for arm in arms):
        layers.add(recipe.adaptation.depth)
    return tuple(sorted(layers, reverse=True))


def _lookup(name: str, found: dict[str, Planned], what: str) -> Planned:
    if name not in found:
        raise RecipeError(f"the recipe's comparison has no {what} {name!r}; it has {sorted(found)}. Compile it again.")
    return found[name]
