"""Once per language: depth search, adaptation, judging, registration; then bundle and report."""

import html
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lingraft import jobs, tracking
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import DepthError
from lingraft.failures import leave, why
from lingraft.files import write_json
from lingraft.metrics import exposed
from lingraft.outcomes import LanguagesFailedError, load_outcome, require_all
from lingraft.plan import unwatched
from lingraft.registered import bundle_name, embeddings_name, primary_name
from lingraft.results import LanguageResult, SearchResult, load_language, load_search, load_source
from lingraft.steps.doing import do, one_job
from lingraft.steps.facts import (
    Judgement,
    Scores,
    confusion_of,
    given,
    language_of,
    merit_of,
    task_folders,
    zero_shot,
)
from lingraft.training_config import SEARCH_STORAGE


def search_depth(
    recipe: str, run: Path, primary: Path, blocks_folder: Path, tokenizer_folder: Path, out: Path
) -> Scores:
    """Search one language's depth, and tag the registered primary with what was found.

    Trials are kept where the environment says, so that a search that was interrupted goes on.
    """
    from lingraft.depth import search

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "search-depth") as stage:
        storage = os.environ.get(SEARCH_STORAGE)
        watch = exposed("search-depth", unwatched)
        made = search(settings, primary, blocks_folder, tokenizer_folder, storage, out, watch)
        result = load_search(out)
        scores = {f"dev_masked_accuracy_depth_{trial.depth}": trial.score for trial in result.trials}
        stage.record(made, scores | {"chosen_depth": float(result.chosen)})
        stage.keep(made, "search")
        tracking.tag(primary_name(settings), f"depth.{result.language}", str(result.chosen))
        tracking.tag(primary_name(settings), f"search_run.{result.language}", stage.run_id)
    tracking.close_run(run.read_text())
    return scores | {"chosen_depth": float(result.chosen)}


def depths_of(recipe: str, language: str, compare: bool, out: Path) -> list[int]:
    """Depths to adapt a language over: the recipe's, the one a search chose, and for comparison all layers."""
    settings = Recipe.parse(recipe)
    chosen = _chosen_depth(settings, language)
    whole = [settings.encoder.layers] if compare else []
    found = sorted({settings.adaptation.depth, chosen, *whole})
    write_json(out / "depths.json", found)
    return found


@one_job
def adapt(
    recipe: str,
    run: Path,
    depth: int,
    primary: Path,
    mini: Path,
    blocks_folder: Path,
    tokenizer_folder: Path,
    out: Path,
) -> Scores:
    """Learn one language's embeddings over one depth; the folder `mini` is empty without a step 1b."""
    language = language_of(blocks_folder, Kind.BLOCKS)
    folders = primary, given(mini), blocks_folder, tokenizer_folder, out
    return do(jobs.adaptation(Recipe.parse(recipe), depth, language, *folders), run)


def evaluate_language(
    recipe: str,
    run: Path,
    primary: Path,
    mini: Path,
    tasks: Path,
    embeddings: Path,
    text_folder: Path,
    blocks_folder: Path,
    out: Path,
) -> Judgement:
    """Judge one language."""
    from lingraft.evaluation import evaluate_language as evaluate

    depth = Artifact.load(embeddings, Kind.EMBEDDINGS).manifest.details["depth"]
    with tracking.stage(run.read_text(), f"evaluate-{language_of(embeddings, Kind.EMBEDDINGS)}-{depth}") as stage:
        settings = Recipe.parse(recipe)
        folders = task_folders(settings, tasks)
        made = evaluate(settings, primary, embeddings, folders, text_folder, blocks_folder, out, given(mini))
        result = load_language(out)
        scores = {f"masked_accuracy_{name}": score for name, score in result.masked.model_dump().items()}
        scores |= zero_shot(result)
        stage.record(made, scores, result.cost)
    return scores, *confusion_of(result.tasks)


def register_language(
    recipe: str, run: Path, embeddings: Sequence[Path], evaluations: Sequence[Path], chosen: Path, results: Path
) -> None:
    """Register the embeddings of the language's own depth; hand them on, with all evaluations of the language.

    The language's own depth is the one a search chose for it, else the recipe's.

    Raises:
        DepthError: the language was not adapted over its own depth.
    """
    settings = Recipe.parse(recipe)
    judged = [load_language(folder) for folder in evaluations]
    for result, folder in zip(judged, evaluations, strict=True):
        Artifact.load(folder, Kind.EVALUATION).copy_to(results / f"{result.language}-{result.depth}")
    with tracking.stage(run.read_text(), f"register-{judged[0].language}") as stage:
        result, folder = _of_own_depth(settings, judged, embeddings)
        facts: dict[str, object] = {"depth": result.depth, "overlap": result.overlap, **result.masked.model_dump()}
        facts |= {
            "evaluation": Artifact.load(results / f"{result.language}-{result.depth}", Kind.EVALUATION).fingerprint
        }
        facts |= zero_shot(result)
        tracking.register(embeddings_name(settings, result.language), folder, Kind.EMBEDDINGS, stage, facts)
        Artifact.load(folder, Kind.EMBEDDINGS).copy_to(chosen)


def _of_own_depth(
    recipe: Recipe, judged: Sequence[LanguageResult], embeddings: Sequence[Path]
) -> tuple[LanguageResult, Path]:
    language = judged[0].language
    by_depth = {result.depth: (result, folder) for result, folder in zip(judged, embeddings, strict=True)}
    own = _chosen_depth(recipe, language)
    if own not in by_depth:
        raise DepthError(
            f"{language!r} was adapted over depths {sorted(by_depth)}, but its own is now {own}: a search ended "
            "meanwhile. Run the language again."
        )
    return by_depth[own]


def bundle(
    recipe: str, run: Path, task: str, primary: Path, tasks: Path, embeddings: Sequence[Path], out: Path
) -> Scores:
    """Export a task's champion with all languages that there are to ONNX, check parity, and register the bundle."""
    from lingraft.export import bundle as export

    settings, learned = Recipe.parse(recipe), [folder for folder in embeddings if not why(folder)]
    if not learned:
        leave(out, "no language succeeded, so there is nothing to serve beside the source language")
        return {}
    best = max((folder for folder in task_folders(settings, tasks) if folder.parent.name == task), key=merit_of)
    with tracking.stage(run.read_text(), f"bundle-{task}") as stage:
        made = export(primary, best, learned, out)
        parity = {f"parity_{key}": float(value) for key, value in made.manifest.details["parity"].items()}
        stage.record(made, parity)
        evidence = {**made.manifest.data_hashes, **parity}
        tracking.register(bundle_name(settings, task), out, Kind.BUNDLE, stage, evidence)
    return parity


def report(
    recipe: str, run: Path, evaluation: Path, results: Sequence[Path], outcomes: Sequence[Path], out: Path
) -> str:
    """Write the report of a source and its languages, with why some failed; returns the page's HTML."""
    from lingraft.report.page import write

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "report") as stage:
        whole = [group for group in results if not why(group)]
        languages = [load_language(folder) for group in whole for folder in sorted(group.iterdir())]
        failed = {each.language: each.failed for each in map(load_outcome, outcomes) if each.failed}
        if not languages:
            leave(out, "no language succeeded, so there is nothing to report beside the source language")
            return f"<p>{html.escape('; '.join(f'{name}: {reason}' for name, reason in failed.items()))}</p>"
        made = write(load_source(evaluation), languages, _searched(settings), out, settings, failed)
        stage.keep(made, "report")
    return (out / "report.html").read_text(encoding="utf-8")


def require_languages(run: Path, outcomes: Sequence[Path]) -> None:
    """End the pipeline's run as what it was.

    Raises:
        LanguagesFailedError: languages failed; the message says which, and why.
    """
    try:
        require_all([load_outcome(folder) for folder in outcomes])
    except LanguagesFailedError:
        tracking.close_run(run.read_text(), failed=True)
        raise
    tracking.close_run(run.read_text())


def _chosen_depth(recipe: Recipe, language: str) -> int:
    return int(tracking.tags_of(primary_name(recipe)).get(f"depth.{language}", recipe.adaptation.depth))


def _searched(recipe: Recipe) -> SearchResult | None:
    """The search of the registered primary's depth, if there was one."""
    if recipe.search is None:
        return None
    run = tracking.tags_of(primary_name(recipe)).get(f"search_run.{recipe.search.language}")
    if run is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "search"
        tracking.fetch_kept(run, "search", Kind.SEARCH, out)
        return load_search(out)
