"""The paper's comparison as data: what is pretrained, finetuned, adapted and judged, each once (sections 3 to 5).

A primary is known by its shape and pretraining seed, so that systems that can share one do: BL_BASE and MINIPOST have
the same, BL_SMALL a shallow one, MINIJOINT one with all its heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.tasks import Task
from lingraft.config.training import Paper
from lingraft.errors import RecipeError

Planned = TypeVar("Planned")

MASKED = "masked"
"""Name of the comparison's own task: finding masked tokens, which needs no examples and no finetuning."""
ALIGNMENT = "alignment"
"""Name of a further task without labels: finding the source's counterparts by hidden states after the top layer."""


@dataclass(frozen=True)
class FinetuningRun:
    """A task learned by a primary, or by its mini-model, with one seed."""

    task: str
    layers: int
    """Bottom layers of the primary that are finetuned."""
    seed: int

    @property
    def key(self) -> str:
        """One word for it; also its place in a folder of a primary's finetunings."""
        return f"{self.task}/{self.layers}-layers/seed-{self.seed}"

    def path_in(self, folder: Path) -> Path:
        """Where it lies among a primary's finetunings."""
        return folder / self.key


@dataclass(frozen=True)
class Arm:
    """A system at one depth, on a primary of one pretraining seed: what every language is adapted by."""

    recipe: Recipe
    """Under that system, depth and seed."""
    start: str = ""
    """Names the initialisation where a comparison has more than one; its recipe's [adaptation] and [alignment] say how
    rows start."""

    @property
    def system(self) -> System:
        """Which one."""
        return self.recipe.system

    @property
    def depth(self) -> int:
        """Bottom layers of the primary that embeddings are learned over."""
        return self.recipe.adaptation.depth

    @property
    def seed(self) -> int:
        """Of pretraining."""
        return self.recipe.pretraining.seed

    @property
    def name(self) -> str:
        """One word, different for every arm."""
        progressive = "-progressive" if self.recipe.adaptation.progressive else ""
        start = f"-{self.start}" if self.start else ""
        return f"{self.system.lower().replace('_', '-')}{progressive}-{self.depth}-seed-{self.seed}{start}"

    @property
    def title(self) -> str:
        """For people."""
        progressive = "progressive " if self.recipe.adaptation.progressive else ""
        start = f", from {self.start}" if self.start else ""
        return f"{progressive}{self.system} at depth {self.depth}, pretraining seed {self.seed}{start}"

    @property
    def primary(self) -> str:
        """Name of its primary."""
        shape = self.recipe.primary_shape
        heads = "-".join(map(str, shape.mlm_heads))
        return f"{shape.layers}-layers-heads-{heads}-seed-{self.seed}"


@dataclass(frozen=True)
class PlannedPrimary:
    """One pretraining, and what is finetuned from it."""

    name: str
    arms: tuple[Arm, ...]
    """Those that adapt languages to it."""
    task_layers: tuple[int, ...]
    """Depths of its models that learn tasks: its own, and that of MINIJOINT's mini-model (table 5)."""

    @property
    def recipe(self) -> Recipe:
        """Under one of its systems; they agree in all that pretraining and finetuning read."""
        return self.arms[0].recipe

    def arm_with_start(self, start: str) -> Arm:
        """Return the arm under whose recipe initial embeddings of a start are written, for all arms with that start."""
        return next(arm for arm in self.arms if arm.start == start)

    @property
    def seed(self) -> int:
        """Of pretraining."""
        return self.arms[0].seed

    @property
    def layers(self) -> int:
        """Of the whole primary."""
        return self.recipe.primary_shape.layers

    @property
    def title(self) -> str:
        """For people."""
        systems = " and ".join(self.systems_over(self.layers))
        return f"the primary of {systems}, pretraining seed {self.seed}"

    @property
    def finetunings(self) -> tuple[FinetuningRun, ...]:
        """Every task with every seed, by each model that learns tasks."""
        return tuple(
            FinetuningRun(task.name, layers, seed)
            for layers in self.task_layers
            for task in self.recipe.tasks
            for seed in task.finetuning.seeds
        )

    def finetuning(self, word: str) -> FinetuningRun:
        """One of the finetunings, by its word.

        Raises:
            RecipeError: the recipe's comparison has no such finetuning.
        """
        return _lookup(word, {one.key: one for one in self.finetunings}, "finetuning")

    def systems_over(self, layers: int) -> tuple[System, ...]:
        """Systems whose model of so many layers learns tasks; a mini-model that does is MINIJOINT's."""
        systems = dict.fromkeys(arm.system for arm in self.arms)
        return tuple(system for system in systems if layers == self.layers or system is System.MINIJOINT)


@dataclass(frozen=True)
class Comparison:
    """All of it."""

    recipe: Recipe
    arms: tuple[Arm, ...]
    primaries: tuple[PlannedPrimary, ...]
    measures_alignment: bool = False
    """Whether languages are judged on `ALIGNMENT`, too."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What some of it is judged on."""
        return tuple(task for task in self.recipe.tasks if any(task in arm.recipe.tasks for arm in self.arms))

    def by_seed(self) -> "dict[int, Comparison]":
        """The comparison by pretraining seed, the main one first; nothing of one builds on another."""
        return {
            seed: replace(
                self,
                arms=tuple(arm for arm in self.arms if arm.seed == seed),
                primaries=tuple(one for one in self.primaries if one.seed == seed),
            )
            for seed in dict.fromkeys(arm.seed for arm in self.arms)
        }

    def arm(self, name: str) -> Arm:
        """An arm by its name.

        Raises:
            RecipeError: the recipe's comparison has no such arm.
        """
        return _lookup(name, {arm.name: arm for arm in self.arms}, "arm")

    def primary(self, name: str) -> PlannedPrimary:
        """A primary by its name.

        Raises:
            RecipeError: the recipe's comparison has no such primary.
        """
        return _lookup(name, {primary.name: primary for primary in self.primaries}, "primary")


def plan_comparison(recipe: Recipe) -> Comparison:
    """Everything that a recipe's comparison runs.

    Where [adaptation] names no checkpoints, the first and the last update are judged.

    Raises:
        RecipeError: the recipe has no [paper], a task has the name of the comparison's own, or a further task is none
            of the recipe's.
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
    further = _further_recipe(recipe, recipe.paper)
    for system, seeds in recipe.paper.further_seeds.items():
        arms += [Arm(_recipe_for(further, system, recipe.adaptation.depth, seed)) for seed in seeds]
    return comparison_of_arms(recipe, arms)


def comparison_of_arms(recipe: Recipe, arms: Sequence[Arm]) -> Comparison:
    """Return the comparison of some arms, with each primary that they need once."""
    by_primary: dict[str, list[Arm]] = {}
    for arm in arms:
        by_primary.setdefault(arm.primary, []).append(arm)
    primaries = (PlannedPrimary(name, (*its,), _task_layers(recipe, its)) for name, its in by_primary.items())
    return Comparison(recipe, (*arms,), (*primaries,))


def _further_recipe(recipe: Recipe, paper: Paper) -> Recipe:
    """The recipe with the tasks that further pretrainings are judged on."""
    if paper.further_tasks is None:
        return recipe
    names = [task.name for task in recipe.tasks]
    if unknown := set(paper.further_tasks).difference(names):
        raise RecipeError(f"paper.further_tasks has {sorted(unknown)}, but the recipe's tasks are {names}.")
    return recipe.model_copy(update={"tasks": tuple(one for one in recipe.tasks if one.name in paper.further_tasks)})


def _recipe_for(recipe: Recipe, system: System, depth: int, seed: int) -> Recipe:
    pretraining = recipe.pretraining.model_copy(update={"seed": seed})
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
