"""MINIPOST's mini-models for a search: one step 1b a depth, run once and shared by all trials and languages."""

from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.config.recipe import Recipe
from lingraft.errors import RecipeError
from lingraft.jobs.training import MiniBuildingJob


@dataclass(frozen=True)
class MiniModels:
    """Mini-models of a recipe whose system builds them; not needed where the primary has a head at each depth."""

    recipe: Recipe
    primary: Path
    source_blocks: Path | None
    state: Path
    """Folder of the mini-models; with `LINGRAFT_RESULTS` they are shared there with searches of other languages."""

    def get_or_build(self, depth: int) -> Artifact | None:
        """Return the mini-model of a depth, and build it if it is absent; None where the system has no step 1b."""
        if not self.recipe.builds_mini:
            return None
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
