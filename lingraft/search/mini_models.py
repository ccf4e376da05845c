"""MINIPOST's mini-models for a search: one step 1b a depth, run once and shared by all trials and languages."""

from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost
from lingraft.config.recipe import Recipe
from lingraft.errors import RecipeError
from lingraft.jobs.job import MiniBuildingJob


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
        job = MiniBuildingJob(
            recipe=self.recipe.over(depth),
            primary=self.primary,
            blocks=self.source_blocks,
            out=self.state / f"mini-{depth}",
        )
        with job.cached() as found:
            return found or job.get_or_make()
