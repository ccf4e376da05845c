"""Once per language whose depth is not known: workers that try depths at the same time, and what they found."""

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
from lingraft.training.metrics import exposed
from lingraft.training.schedule import unwatched

if TYPE_CHECKING:
    from lingraft.search import Inputs

_DEPTH, _MINI_DEPTH = "depth.", "mini_depth."
"""Prefixes of the tags of a registered primary that say which depth was best for a language.

The language pipeline takes the first kind. MINIPOST's mini-models are registered one a recipe, so that depths of the
second kind are for people, and for the next search.
"""
TRIALS_FILE = "trials.json"
_SCORES = {"masked": "dev_masked_accuracy", "alignment": "dev_alignment"}
"""Names of trials' scores in tracking, by the search's metric."""


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
    """Take part in a search as one of its workers, until all of its trials have ended.

    Trials are kept where the environment says, and their checkpoints where results are: a worker that was lost is made
    up for by another, or by itself when it is started again.
    """
    from lingraft.search import shared_storage, work

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), f"try-depths-{worker}"):
        storage, known = shared_storage(os.environ.get(SEARCH_STORAGE)), _known(settings)
        make_folder(out)
        inputs = _inputs(
            primary, blocks_folder, tokenizer_folder, source_blocks, initial, source_evaluation, text_folder
        )
        found = work(settings, inputs, storage, known, watch=exposed("search-depth", unwatched))
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
    """Conclude a search: do what workers have left, choose, and tag the registered primary with what was found.

    Args:
        recipe: with its [search].
        run: file that names the pipeline's tracking run.
        primary: whose depths were tried.
        blocks_folder: of the language.
        tokenizer_folder: that they were made with.
        source_blocks: of the source language, for MINIPOST; an empty folder otherwise.
        source_evaluation: of the primary.
        text_folder: of the language.
        worked: what the workers left, which is waited for and not read: the storage has it.
        out: of the result.
        initial: embeddings that trials of the recipe's initialisation start from.
    """
    from lingraft.search import search, shared_storage

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "search-depth") as stage:
        storage, known = shared_storage(os.environ.get(SEARCH_STORAGE)), _known(settings)
        inputs = _inputs(
            primary, blocks_folder, tokenizer_folder, source_blocks, initial, source_evaluation, text_folder
        )
        made = search(settings, inputs, storage, out, known, watch=exposed("search-depth", unwatched))
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
    """Best depths of languages that were searched before, as the registered primary has them."""
    tags, prefix = tracking.tags_of(primary_name(settings)), _prefix(settings)
    return {name.removeprefix(prefix): int(depth) for name, depth in tags.items() if name.startswith(prefix)}


def _prefix(settings: Recipe) -> str:
    return _MINI_DEPTH if settings.builds_mini else _DEPTH
