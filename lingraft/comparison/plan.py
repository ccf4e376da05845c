"""Plan of a comparison: everything that is pretrained, finetuned, adapted and evaluated, each once (sections 3 to 5).

A primary is identified by its shape and pretraining seed, so that systems share one where they can: BL_BASE and
MINIPOST have the same, BL_SMALL a shallow one, MINIJOINT one with all its heads.
"""

from dataclasses import dataclass
from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.errors import RecipeError

MASKED = "masked"
"""The comparison's own task: prediction of masked tokens, without examples or finetuning."""
TRANSLATIONS = "translations"
"""A further task without labels: retrieval of the translations of lines by hidden states of the top layer."""


@dataclass(frozen=True)
class FinetuningRun:
    """Finetuning of a primary, or of its mini-model, on one task with one seed."""

    task: str
    layers: int
    """Number of bottom layers of the primary that are finetuned."""
    seed: int

    def path_in(self, folder: Path) -> Path:
        """Return its folder among a primary's finetunings."""
        return folder / self.task / f"{self.layers}-layers" / f"seed-{self.seed}"


@dataclass(frozen=True)
class Arm:
    """A system at one depth and from one start, on a primary of one pretraining seed; it adapts every language."""

    recipe: Recipe
    """Recipe with that system, depth, start and seed."""
    start: str = ""
    """Name of the start in [paper.starts]; empty where there is only the recipe's own."""

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

    def tasks_in(self, language: str) -> list[str]:
        """Return the names of the tasks that the arm is evaluated on in a language."""
        recipe = self.recipe
        translations = [TRANSLATIONS] if language in recipe.alignment.judged else []
        return [MASKED, *translations, *(task.name for task in recipe.tasks_in(language))]


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
        return f"the primary of {' and '.join(self.systems_over(self.layers))}, pretraining seed {self.seed}"

    def finetunings(self, task: str) -> list[FinetuningRun]:
        """Return the finetunings on a task with every seed, for each model that learns tasks."""
        seeds = {one.name: one.finetuning.seeds for one in self.recipe.tasks}
        return [FinetuningRun(task, layers, seed) for layers in self.task_layers for seed in seeds.get(task, ())]

    def systems_over(self, layers: int) -> tuple[System, ...]:
        """Return the systems whose model of so many layers learns tasks; a mini-model that does is MINIJOINT's."""
        systems = dict.fromkeys(arm.system for arm in self.arms)
        return tuple(system for system in systems if layers == self.layers or system is System.MINIJOINT)


@dataclass(frozen=True)
class Comparison:
    """All arms and primaries of a comparison."""

    recipe: Recipe
    primaries: tuple[PlannedPrimary, ...]

    @property
    def arms(self) -> list[Arm]:
        """All arms, by primary."""
        return [arm for primary in self.primaries for arm in primary.arms]


def plan_comparison(recipe: Recipe) -> Comparison:
    """Return the plan of a recipe's comparison.

    Where [adaptation] names no checkpoints, the first and the last update are evaluated.

    Raises:
        RecipeError: the recipe has no [paper], a start in it does not fit, or a task has the name of the comparison's
            own.
    """
    if recipe.paper is None:
        raise RecipeError("the recipe has no [paper], which says what is compared. Add one, such as 'systems = [...]'.")
    if taken := {MASKED, TRANSLATIONS} & {task.name for task in recipe.tasks}:
        raise RecipeError(f"the comparison has a task {taken.pop()!r} of its own. Choose another name in [[tasks]].")
    by_primary: dict[str, list[Arm]] = {}
    for seed in recipe.paper.pretraining_seeds:
        for start, of_start in recipe.by_start().items():
            for system in recipe.paper.systems:
                for depth in _depths(recipe, of_start, system):
                    arm = Arm(_recipe_for(of_start, system, depth, seed), start)
                    by_primary.setdefault(arm.primary, []).append(arm)
    primaries = [PlannedPrimary(name, (*arms,), _task_layers(recipe, arms)) for name, arms in by_primary.items()]
    return Comparison(recipe, (*primaries,))


def _recipe_for(recipe: Recipe, system: System, depth: int, seed: int) -> Recipe:
    pretraining = recipe.require_pretraining().model_copy(update={"seed": seed})
    every = recipe.adaptation.checkpoint_every_steps
    if not recipe.adaptation.checkpoint_steps:
        every = recipe.adaptation.steps
    adaptation = recipe.adaptation.model_copy(update={"checkpoint_every_steps": every})
    changed = recipe.model_copy(update={"pretraining": pretraining, "adaptation": adaptation})
    return changed.for_system(system, depth)


def _depths(recipe: Recipe, of_start: Recipe, system: System) -> list[int]:
    """The recipe's depth, and for MINIJOINT those of table 4 too."""
    further = recipe.paper.depths if recipe.paper and system is System.MINIJOINT else ()
    return sorted({of_start.adaptation.depth, *further})


def _task_layers(recipe: Recipe, arms: list[Arm]) -> tuple[int, ...]:
    layers = {arms[0].recipe.primary_shape.layers}
    if any(arm.system is System.MINIJOINT for arm in arms):
        layers.add(recipe.adaptation.depth)
    return tuple(sorted(layers, reverse=True))
