"""Costs of each system under a recipe before it is trained: FLOPs by the paper's formulas, and hours at a rate."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step, Steps, System, TrainedPart
from lingraft.config.training import Training
from lingraft.errors import DepthError
from lingraft.model.flops import EXA, FORMULAS, UpdateShape, counted_otherwise, flops_per_update, mlm_update_shape
from lingraft.tables import counted, text_table

_SMALL = 0.1
"""Number below which two decimals say too little."""


@dataclass(frozen=True)
class BilledRun:
    """A training run of one step."""

    name: str
    step: Step
    updates: int
    work: UpdateShape
    trials: int = 1
    """Runs of a depth search, of equal cost."""

    @property
    def formula(self) -> str:
        """Number of the paper's equation."""
        return FORMULAS[self.step.trained].name

    @property
    def flops(self) -> float:
        """FLOPs of the run with one seed, in one language."""
        return self.updates * flops_per_update(self.step, self.work)

    @property
    def is_per_language(self) -> bool:
        """Whether every target language needs a run of its own."""
        return self.step.trained is TrainedPart.EMBEDDINGS


@dataclass(frozen=True)
class Bill:
    """All runs of a system; those of a language come one after the other."""

    system: System
    depth: int
    """Bottom layers that the mini-model shares with the primary, as asked for."""
    runs: tuple[BilledRun, ...]

    def flops(self, languages: int) -> float:
        """Return the FLOPs of everything that so many languages need."""
        return sum(run.flops * (languages if run.is_per_language else 1) for run in self.runs)


class OmittedSystem(NamedTuple):
    """A system that the recipe has no settings for."""

    system: System
    depth: int
    reason: str


def bills(
    recipe: Recipe,
    systems: Sequence[System] = (),
    depths: Sequence[int] = (),
) -> tuple[list[Bill], list[OmittedSystem]]:
    """Return what each system costs, and the systems that the recipe has no settings for.

    Args:
        recipe: shape, updates and batches.
        systems: those asked for, each of which must be possible; every possible one if empty.
        depths: depths of the mini-model; the recipe's `adaptation.depth` if empty. A system without a mini-model is
            listed once.

    Raises:
        DepthError: a depth that no model of the recipe has, or that a system asked for cannot have.
    """
    found: dict[tuple[System, tuple[BilledRun, ...]], Bill] = {}
    left_out = []
    for system, depth in itertools.product(systems or System, depths or (recipe.adaptation.depth,)):
        try:
            steps = _steps(recipe, system, depth)
        except DepthError as error:
            if systems or not 1 <= depth <= recipe.encoder.layers:
                raise
            left_out.append(OmittedSystem(system, depth, str(error)))
        else:
            runs = tuple(_runs(recipe, steps))
            found.setdefault((system, runs), Bill(system, depth, runs))
    return list(found.values()), left_out


def searched(recipe: Recipe) -> BilledRun | None:
    """Return a trial of the recipe's depth search, with the number of trials; None without one."""
    if recipe.search is None:
        return None
    step = recipe.steps_over(recipe.adaptation.depth)[Stage.ADAPT]
    work = mlm_update_shape(recipe, step, recipe.adaptation, recipe.tokenizer.vocabulary)
    return BilledRun("search", step, recipe.search.steps_at_depth, work, len(recipe.searched_depths))


def _steps(recipe: Recipe, system: System, depth: int) -> Steps:
    steps = recipe.steps_over(depth, system)
    heads = set(steps[Stage.PRETRAIN].heads)
    if Stage.BUILD_MINI not in steps and not set(steps[Stage.ADAPT].heads) <= heads:
        raise DepthError(
            f"{system} at depth {depth} needs an MLM head there, but encoder.mlm_heads gives heads at {sorted(heads)} "
            f"only. Add {depth} to encoder.mlm_heads."
        )
    return steps


def _runs(recipe: Recipe, steps: Steps) -> Iterator[BilledRun]:
    if recipe.pretraining:  # else somebody has paid for it
        yield _run(recipe, recipe.pretraining, steps[Stage.PRETRAIN])
    if recipe.mini and Stage.BUILD_MINI in steps:
        yield _run(recipe, recipe.mini, steps[Stage.BUILD_MINI])
    yield _run(recipe, recipe.adaptation, steps[Stage.ADAPT])


def _run(recipe: Recipe, training: Training, step: Step) -> BilledRun:
    work = mlm_update_shape(recipe, step, training, recipe.tokenizer.vocabulary)
    return BilledRun(step.stage, step, training.steps, work)


def as_text(
    recipe: Recipe, bills: Sequence[Bill], omitted: Sequence[OmittedSystem], languages: int, tflops: float
) -> str:
    """Return FLOPs and hours of every system and step, for one language and for all.

    Args:
        recipe: recipe of the bills.
        bills: systems with their runs.
        omitted: systems that the recipe has no settings for.
        languages: number of target languages.
        tflops: rate of training, in TFLOP/s.
    """

    def amounts(flops: float) -> tuple[str, str]:
        return _amount(flops / EXA), _amount(flops / (tflops * 1e12) / 3600)

    rows = [["system", "step", "layers", "heads", "equation", "updates", "EFLOPs", "hours"]]
    for bill in bills:
        for run in bill.runs:
            system = bill.system if run is bill.runs[0] else ""
            name = f"{run.name}{', each language' * run.is_per_language}"
            shape = [str(run.step.layers), str(len(run.step.heads)), run.formula, f"{run.updates:,}"]
            rows.append([system, name, *shape, *amounts(run.flops)])
        for count in sorted({1, languages}):
            rows.append(["", f"total, {counted(count, 'language')}", "", "", "", "", *amounts(bill.flops(count))])
    notes = [f"Equations of the paper's appendix A.1; hours at {tflops:g} TFLOP/s."]
    if note := counted_otherwise(recipe.encoder):
        notes.append(note)
    if search := searched(recipe):
        most = _amount(search.trials * search.flops / EXA)
        notes.append(f"Not counted: the depth search, {search.trials} trials, at most {most} EFLOPs together.")
    notes += [f"Left out: {absent.system} at depth {absent.depth}: {absent.reason}" for absent in omitted]
    return "\n".join([*text_table(rows, left=2), "", *notes])


def _amount(number: float) -> str:
    """Return a number with two decimals, or three figures of what is too small for that."""
    return f"{number:.3g}" if 0 < number < _SMALL else f"{number:,.2f}"
