"""Compute budget of a search: trials are compared at equal FLOPs, not at equal numbers of updates.

A deeper trial costs more FLOPs an update, so it gets fewer updates. All trials are evaluated on one shared grid of
FLOPs: evaluation n takes place after n/looks of the budget, to within half an update.
"""

from dataclasses import dataclass

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.model.flops import step_flops
from lingraft.search.space import Params, trial_settings


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
        search = self.recipe.require_search()
        adaptation = self.recipe.adaptation
        if search.flop_budget is not None:
            return search.flop_budget
        return (search.steps_at_depth or 0) * self._step_flops({"depth": adaptation.depth})

    def trial_length(self, params: Params) -> TrialLength:
        """Return the length of a trial with these parameters."""
        looks = self.recipe.require_search().looks
        each = self._step_flops(params)
        after = {max(1, round(self.flops * look / looks / each)): look for look in range(1, looks + 1)}
        return TrialLength(max(after), each, after)

    def step(self, params: Params) -> Step:
        """Return the training step of a trial: its trained parameters and layers."""
        return self.recipe.steps_over(params["depth"])[Stage.ADAPT]

    def _step_flops(self, params: Params) -> float:
        return step_flops(self.recipe, self.step(params), trial_settings(self.recipe, params, steps=1), self.vocabulary)
