"""Steps of a depth search for a language: workers that try depths at the same time, and the conclusion."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lingraft import tracking
from lingraft.artifacts.files import make_folder, write_json
from lingraft.artifacts.names import primary_name
from lingraft.config.search import SEARCH_STORAGE
from lingraft.data.languages import language_name, name_and_tag
from lingraft.jobs.launchable import Input, InputList, Launchable, OptionalInput, Output
from lingraft.stages.results import load_search
from lingraft.steps.run_job import Scores
from lingraft.training.metrics import expose_metrics
from lingraft.training.schedule import ignore_metrics

if TYPE_CHECKING:
    from lingraft.search import Inputs

_DEPTH = "depth."
_MINI_DEPTH = "mini_depth."
"""Prefixes of a registered primary's tags with the best depth of a language.

The language pipeline reads the first. A recipe registers one MINIPOST mini-model, so depths of the second kind are for
people only.
"""
TRIALS_FILE = "trials.json"
_SCORES = {"masked": "dev_masked_accuracy", "alignment": "dev_alignment"}
"""Names of the trials' scores in tracking, by the search's metric."""


class DepthTrials(Launchable, frozen=True):
    """The work of one worker of a depth search."""

    worker: int
    primary: Input
    blocks: Input
    tokenizer: Input
    source_blocks: OptionalInput = None
    """Blocks of the source language, for MINIPOST."""
    source_evaluation: Input
    text: Input
    initial: OptionalInput = None
    """Embeddings that the trials start from, by the recipe's initialisation."""
    out: Output

    @property
    def search_inputs(self) -> "Inputs":
        """Folders that the search reads."""
        from lingraft.search import Inputs

        return Inputs(
            primary=self.primary,
            blocks=self.blocks,
            tokenizer=self.tokenizer,
            source_blocks=self.source_blocks,
            initial=self.initial,
            source_evaluation=self.source_evaluation,
            text=self.text,
        )


class DepthSearch(DepthTrials, frozen=True):
    """The conclusion of a depth search."""

    worker: int = 0
    worked: InputList
    """Outputs of the workers, which the step waits for; it reads the trials from the storage."""


def try_depths(given: DepthTrials, run: Path) -> Scores:
    """Take part in a search as one of its workers, until all trials have ended.

    The environment names the storage of trials; their checkpoints lie with the results. Another worker, or the same
    one after a restart, continues the trials of a lost worker.
    """
    from lingraft.search import shared_storage, work

    with tracking.stage(run.read_text(), f"try-depths-{given.worker}"):
        make_folder(given.out)
        found = work(
            recipe=given.recipe,
            inputs=given.search_inputs,
            storage=shared_storage(os.environ.get(SEARCH_STORAGE)),
            worker=given.worker,
            watch=expose_metrics("search-depth", ignore_metrics),
        )
        write_json(given.out / TRIALS_FILE, [trial.model_dump(mode="json") for trial in found])
    return {"trials": float(len(found)), "flops": sum(trial.flops for trial in found)}


def search_depth(given: DepthSearch, run: Path) -> Scores:
    """Conclude a search: run the trials that are left, choose a depth, and tag the registered primary with it."""
    from lingraft.search import search, shared_storage

    recipe = given.recipe
    with tracking.stage(run.read_text(), "search-depth") as stage:
        made = search(
            recipe=recipe,
            inputs=given.search_inputs,
            storage=shared_storage(os.environ.get(SEARCH_STORAGE)),
            out=given.out,
            watch=expose_metrics("search-depth", ignore_metrics),
        )
        result = load_search(given.out)
        scores = {f"{_SCORES[result.metric]}_depth_{trial.depth}": trial.score for trial in result.trials}
        scores |= {"chosen_depth": float(result.chosen), "share_of_grid": result.flops / result.grid_flops}
        stage.record(made, scores)
        stage.log_artifact(made, "search")
        prefix = _MINI_DEPTH if recipe.builds_mini else _DEPTH
        tracking.tag(primary_name(recipe), f"{prefix}{result.language}", str(result.chosen))
        tracking.tag(primary_name(recipe), f"search_run.{result.language}", stage.run_id)
        note = (
            f"**{result.chosen} layers are the best for {name_and_tag(result.language)}**, of {len(result.trials)} "
            f"trials. {result.reason}.\n\nThe whole result is the artifact `search` of the run `search-depth` below."
        )
        name = f"depth-search: {language_name(result.language)}"
        tracking.describe(stage.client, run.read_text(), name, note, scores)
    tracking.close_run(run.read_text())
    return scores
