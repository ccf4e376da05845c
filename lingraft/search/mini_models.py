"""MINIPOST's mini-models for a search: one step 1b a depth, run once and shared by all trials and languages."""

import math
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Cost
from lingraft.artifacts.cache import get_or_make
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import InUseError, RecipeError
from lingraft.jobs import job as jobs
from lingraft.jobs import shared_results
from lingraft.retry import retry
from lingraft.training.schedule import ignore_metrics


@dataclass(frozen=True)
class MiniModels:
    """Mini-models of a recipe whose system builds them; not needed where the primary has a head at each depth."""

    recipe: Recipe
    primary: Path
    source_blocks: Path | None
    state: Path
    """Folder of the mini-models; with `LINGRAFT_RESULTS` they are shared there with searches of other languages."""

    @property
    def needed(self) -> bool:
        """Whether the recipe's system has a step 1b."""
        return self.recipe.builds_mini

    def get_or_build(self, depth: int) -> Path | None:
        """Return the folder of the mini-model of a depth, and build it if it is absent; None where none is needed.

        Raises:
            RecipeError: there is no text of the source language to build it from.
        """
        return self._get_or_build(depth).folder if self.needed else None

    def costs(self, depths: list[int]) -> dict[int, Cost]:
        """Return the cost of step 1b by depth."""
        return {depth: self._get_or_build(depth).manifest.cost for depth in depths} if self.needed else {}

    def _get_or_build(self, depth: int) -> Artifact:
        if self.source_blocks is None:
            raise RecipeError(
                f"a search over {self.recipe.system}'s depths builds a mini-model of each, in the source language, but "
                "its blocks are not given. Give the folder that `lingraft blocks` wrote for it (--source-blocks)."
            )
        out = self.state / f"mini-{depth}"
        job = jobs.mini_building(self.recipe.over(depth), self.primary, self.source_blocks, out)
        return retry(
            lambda: get_or_make(
                job.made, job.kind, job.made_from, lambda: shared_results.get_or_run(job, ignore_metrics)
            ),
            is_transient=lambda error: isinstance(error, InUseError),
            within_s=math.inf,
            before_pause=lambda error, _: say(
                f"another worker builds the mini-model over {depth} layers; it is waited for: {error}"
            ),
        )
