"""Compute budget of a search: trials are compared at equal FLOPs, not at equal numbers of updates.

A deeper trial costs more FLOPs an update, so it gets fewer updates. All trials are evaluated on one shared grid of
FLOPs: evaluation n takes place after n/looks of the budget, to within half an update.
"""

from dataclasses import dataclass

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.config.training import Adaptation
from lingraft.model.flops import step_flops


@dataclass(frozen=True)
class TrialLength:
    """Number of updates of one trial, and the updates after which it is evaluated."""

    steps: int
    flops_per_step: float
    looks: dict[int, int]
    """Number of each evaluation by the update after which it takes place, in order; the last follows the last update.
    """

    @property
    def last_look(self) -> int:
        """Number of the last evaluation."""
        return max(self.looks.values())

    @property
    def flops(self) -> float:
        """FLOPs of the whole trial."""
        return self.steps * self.flops_per_step

    def curve(self, scores: dict[int, float]) -> list[tuple[float, float]]:
        """Return FLOPs and score of the given evaluations, including the one before any update."""
        spent = {0: 0.0} | {look: step * self.flops_per_step for step, look in self.looks.items()}
        return [(spent[look], scores[look]) for look in sorted(scores) if look in spent]


@dataclass(frozen=True)
class Budget:
    """FLOPs that a trial may spend, by the paper's formulas (equation A3)."""

    recipe: Recipe
    vocabulary: int
    """Number of pieces of the language's tokenizer."""

    @property
    def flops(self) -> float:
        """FLOPs of a whole trial."""
        return self.recipe.require_search().steps_at_depth * self._step_flops(self.recipe.adaptation.depth)

    def trial_length(self, depth: int) -> TrialLength:
        """Return the length of a trial of a depth."""
        looks = self.recipe.require_search().looks
        each = self._step_flops(depth)
        after = {max(1, round(self.flops * look / looks / each)): look for look in range(1, looks + 1)}
        return TrialLength(max(after), each, after)

    def step(self, depth: int) -> Step:
        """Return the training step of a trial: its trained parameters and layers."""
        return self.recipe.steps_over(depth)[Stage.ADAPT]

    def _step_flops(self, depth: int) -> float:
        return step_flops(self.recipe, self.step(depth), self.recipe.adaptation, self.vocabulary)


def trial_settings(recipe: Recipe, steps: int) -> Adaptation:
    """Return the recipe's adaptation for so many updates, with a tenth of them as warm-up."""
    length = {"steps": steps, "log_every_steps": steps, "warmup_steps": steps // 10}
    return recipe.adaptation.model_copy(update=length)
