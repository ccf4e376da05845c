"""Steps of a depth search for a language: workers that try depths at the same time, and the conclusion."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lingraft import tracking
from lingraft.artifacts.files import make_folder, write_json
from lingraft.artifacts.names import primary_name
from lingraft.config.recipe import Recipe
from lingraft.config.search import SEARCH_STORAGE
from lingraft.data.languages import language_name, name_and_tag
from lingraft.stages.results import load_search
from lingraft.steps.step_io import Scores, non_empty
from lingraft.training.metrics import expose_metrics
from lingraft.training.schedule import ignore_metrics

if TYPE_CHECKING:
    from lingraft.search import Inputs

_DEPTH, _MINI_DEPTH = "depth.", "mini_depth."
"""Prefixes of a registered primary's tags with the best depth of a language.

The language pipeline reads the first. A recipe registers one MINIPOST mini-model, so depths of the second kind are for
people and for the next search only.
"""
TRIALS_FILE = "trials.json"
_SCORES = {"masked": "dev_masked_accuracy", "alignment": "dev_alignment"}
"""Names of the trials' scores in tracking, by the search's metric."""


def try_depths(
    recipe: str,
    run: Path,
    worker: int,
    primary: Path,
    blocks_folder: Path,
    tokenizer_folder: Path,
    source_blocks: Path,
    source_evaluation: Path,
    text_folder: Path,
    out: Path,
    initial: Path | None = None,
) -> Scores:
    """Take part in a search as one of its workers, until all trials have ended.

    The environment names the storage of trials; their checkpoints lie with the results. Another worker, or the same
    one after a restart, continues the trials of a lost worker.
    """
    from lingraft.search import shared_storage, work

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), f"try-depths-{worker}"):
        storage = shared_storage(os.environ.get(SEARCH_STORAGE))
        known = _known(settings)
        make_folder(out)
        inputs = _inputs(
            primary, blocks_folder, tokenizer_folder, source_blocks, initial, source_evaluation, text_folder
        )
        found = work(settings, inputs, storage, known, watch=expose_metrics("search-depth", ignore_metrics))
        write_json(out / TRIALS_FILE, [trial.model_dump(mode="json") for trial in found])
    return {"trials": float(len(found)), "flops": sum(trial.flops for trial in found)}


def search_depth(
    recipe: str,
    run: Path,
    primary: Path,
    blocks_folder: Path,
    tokenizer_folder: Path,
    source_blocks: Path,
    source_evaluation: Path,
    text_folder: Path,
    worked: Sequence[Path],
    out: Path,
    initial: Path | None = None,
) -> Scores:
    """Conclude a search: run the trials that are left, choose a depth, and tag the registered primary with it.

    Args:
        recipe: recipe as JSON, with its [search].
        run: file with the id of the pipeline's tracking run.
        primary: folder of the primary.
        blocks_folder: blocks of the language.
        tokenizer_folder: tokenizer of the blocks.
        source_blocks: blocks of the source language for MINIPOST; an empty folder otherwise.
        source_evaluation: evaluation of the primary.
        text_folder: text of the language.
        worked: outputs of the workers, on which the step waits; it reads the trials from the storage.
        out: folder of the result.
        initial: embeddings that the trials start from, by the recipe's initialisation.
    """
    from lingraft.search import search, shared_storage

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "search-depth") as stage:
        storage = shared_storage(os.environ.get(SEARCH_STORAGE))
        known = _known(settings)
        inputs = _inputs(
            primary, blocks_folder, tokenizer_folder, source_blocks, initial, source_evaluation, text_folder
        )
        made = search(settings, inputs, storage, out, known, watch=expose_metrics("search-depth", ignore_metrics))
        result = load_search(out)
        scores = {f"{_SCORES[result.metric]}_depth_{trial.depth}": trial.score for trial in result.trials}
        scores |= {"chosen_depth": float(result.chosen), "share_of_grid": result.flops / result.grid_flops}
        stage.record(made, scores)
        stage.log_artifact(made, "search")
        tracking.tag(primary_name(settings), f"{_prefix(settings)}{result.language}", str(result.chosen))
        tracking.tag(primary_name(settings), f"search_run.{result.language}", stage.run_id)
        note = (
            f"**{result.chosen} layers are the best for {name_and_tag(result.language)}**, of {len(result.trials)} "
            f"trials. {result.reason}\n\nThe whole result is the artifact `search` of the run `search-depth` below."
        )
        name = f"depth-search: {language_name(result.language)}"
        tracking.describe(stage.client, run.read_text(), name, note, scores)
    tracking.close_run(run.read_text())
    return scores


def _inputs(
    primary: Path,
    blocks_folder: Path,
    tokenizer_folder: Path,
    source_blocks: Path,
    initial: Path | None,
    source_evaluation: Path,
    text_folder: Path,
) -> "Inputs":
    from lingraft.search import Inputs

    return Inputs(
        primary=primary,
        blocks=blocks_folder,
        tokenizer=tokenizer_folder,
        source_blocks=non_empty(source_blocks),
        initial=initial,
        source_evaluation=source_evaluation,
        text=text_folder,
    )


def _known(settings: Recipe) -> dict[str, int]:
    """Return the best depths of languages that were searched before, from the registered primary's tags."""
    tags = tracking.tags_of(primary_name(settings))
    prefix = _prefix(settings)
    return {name.removeprefix(prefix): int(depth) for name, depth in tags.items() if name.startswith(prefix)}


def _prefix(settings: Recipe) -> str:
    return _MINI_DEPTH if settings.builds_mini else _DEPTH
