"""The stages as pipeline steps: a recipe in JSON, folders, and a tracking run to stand under.

A KFP component is one call of a function here, so that all logic stays where it is tested as plain Python. What a
function returns are the numbers to show beside the step. What imports PyTorch is imported where it is needed: half of
the steps move data or ask the registry, and would wait for it in vain.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from lingraft import text, tokenizer, tracking
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import DepthError
from lingraft.files import write_text
from lingraft.results import LanguageResult, SearchResult, load_language, load_search, load_source

Scores = dict[str, float]


def open_run(recipe: str, pipeline: str, out: Path) -> None:
    """Begin the tracking run of a pipeline; the file `out` names it to the other steps."""
    write_text(out, tracking.open_run(Recipe.parse(recipe), pipeline))


def prepare_text(recipe: str, run: Path, language: str, out: Path) -> None:
    """Read, split and write one language's text."""
    with tracking.stage(run.read_text(), f"text-{language}") as stage:
        stage.record(text.prepare(Recipe.parse(recipe), language, out), {})


def train_tokenizer(recipe: str, run: Path, text_folder: Path, out: Path) -> None:
    """Train one language's tokenizer."""
    with tracking.stage(run.read_text(), f"tokenizer-{_language(text_folder, Kind.TEXT)}") as stage:
        stage.record(tokenizer.train(Recipe.parse(recipe), text_folder, out), {})


def build_blocks(recipe: str, run: Path, text_folder: Path, tokenizer_folder: Path, out: Path) -> None:
    """Pack one language's text into blocks."""
    from lingraft import blocks

    with tracking.stage(run.read_text(), f"blocks-{_language(text_folder, Kind.TEXT)}") as stage:
        stage.record(blocks.build(Recipe.parse(recipe), text_folder, tokenizer_folder, out), {})


def pretrain(recipe: str, run: Path, blocks_folder: Path, tokenizer_folder: Path, out: Path) -> Scores:
    """Train the primary."""
    from lingraft import stages

    with tracking.stage(run.read_text(), "pretrain") as stage:
        made = stages.pretrain(Recipe.parse(recipe), blocks_folder, tokenizer_folder, out, stage.watch)
        stage.record(made, {})
    return _cost(made)


def finetune(recipe: str, run: Path, seed: int, primary: Path, text_folder: Path, out: Path) -> Scores:
    """Finetune the task in the source language, with one seed."""
    from lingraft import stages

    with tracking.stage(run.read_text(), f"finetune-{seed}") as stage:
        made = stages.finetune(Recipe.parse(recipe), primary, text_folder, seed, out, stage.watch)
        scores = {"dev_accuracy": float(made.manifest.details["dev_accuracy"])}
        stage.record(made, scores)
    return _cost(made) | scores


def evaluate_source(
    recipe: str, run: Path, primary: Path, tasks: Sequence[Path], text_folder: Path, blocks_folder: Path, out: Path
) -> tuple[Scores, list[str], list[list[int]]]:
    """Judge the source; also returns the task's labels and confusion matrix, both empty without a task."""
    from lingraft.evaluation import evaluate_source as evaluate

    with tracking.stage(run.read_text(), "evaluate-source") as stage:
        made = evaluate(Recipe.parse(recipe), primary, tasks, text_folder, blocks_folder, out)
        result = load_source(out)
        scores = {f"masked_accuracy_depth_{depth}": score for depth, score in result.masked_by_depth.items()}
        if result.task:
            scores["task_accuracy"] = result.task.accuracy.mean
        stage.record(made, scores, result.pretraining)
    return (scores, result.task.labels, result.task.confusion) if result.task else (scores, [], [])


def register_source(recipe: str, run: Path, primary: Path, tasks: Sequence[Path], evaluation: Path) -> None:
    """Register the primary and its finetuned tasks: each seed under its own alias, the best on dev as champion."""
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "register-source") as stage:
        result = load_source(evaluation)
        stage.keep(Artifact.load(evaluation, Kind.EVALUATION), "evaluation")
        scores = {f"masked_accuracy_depth_{depth}": score for depth, score in result.masked_by_depth.items()}
        evidence = {"evaluation_run": stage.run_id, "recipe": settings.digest(), **scores}
        tracking.register(primary_name(settings), primary, Kind.PRIMARY, stage, evidence)
        for folder in sorted(tasks, key=_merit):
            accuracy, seed = _merit(folder)
            facts = {"seed": seed, "dev_accuracy": accuracy}
            tracking.register(task_name(settings), folder, Kind.TASK, stage, facts, (f"seed-{seed}", tracking.CHAMPION))
    tracking.close_run(run.read_text())


def fetch_source(recipe: str, run: Path, primary: Path, tasks: Path, evaluation: Path) -> None:
    """Bring the registered primary, its tasks (one sub-folder a seed) and its evaluation to folders."""
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "fetch-source"):
        tracking.fetch(primary_name(settings), Kind.PRIMARY, primary)
        evidence = tracking.tags_of(primary_name(settings))
        tracking.fetch_kept(evidence["evaluation_run"], "evaluation", Kind.EVALUATION, evaluation)
        tasks.mkdir(parents=True, exist_ok=True)
        for folder in _task_folders(settings, tasks):
            tracking.fetch(task_name(settings), Kind.TASK, folder, alias=folder.name)


def search_depth(
    recipe: str, run: Path, primary: Path, blocks_folder: Path, tokenizer_folder: Path, storage: str, out: Path
) -> Scores:
    """Search one language's depth, and tag the registered primary with what was found."""
    from lingraft.depth import search

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "search-depth") as stage:
        made = search(settings, primary, blocks_folder, tokenizer_folder, storage or None, out)
        result = load_search(out)
        scores = {f"dev_masked_accuracy_depth_{trial.depth}": trial.score for trial in result.trials}
        stage.record(made, scores | {"chosen_depth": float(result.chosen)})
        stage.keep(made, "search")
        tracking.tag(primary_name(settings), f"depth.{result.language}", str(result.chosen))
        tracking.tag(primary_name(settings), f"search_run.{result.language}", stage.run_id)
    tracking.close_run(run.read_text())
    return scores | {"chosen_depth": float(result.chosen)}


def depths_of(recipe: str, language: str, compare: bool) -> list[int]:
    """Depths to adapt a language over: the recipe's, the one a search chose, and for comparison all layers."""
    settings = Recipe.parse(recipe)
    chosen = _chosen_depth(settings, language)
    whole = [settings.encoder.layers] if compare else []
    return sorted({settings.adaptation.depth, chosen, *whole})


def adapt(
    recipe: str, run: Path, depth: int, primary: Path, blocks_folder: Path, tokenizer_folder: Path, out: Path
) -> Scores:
    """Learn one language's embeddings over one depth."""
    from lingraft import stages

    with tracking.stage(run.read_text(), f"adapt-{_language(blocks_folder, Kind.BLOCKS)}-{depth}") as stage:
        made = stages.adapt(Recipe.parse(recipe), primary, blocks_folder, tokenizer_folder, depth, out, stage.watch)
        stage.record(made, {})
    return _cost(made)


def evaluate_language(
    recipe: str,
    run: Path,
    primary: Path,
    tasks: Path,
    embeddings: Path,
    text_folder: Path,
    blocks_folder: Path,
    out: Path,
) -> tuple[Scores, list[str], list[list[int]]]:
    """Judge one language; also returns the task's labels and confusion matrix, both empty without a task."""
    from lingraft.evaluation import evaluate_language as evaluate

    depth = Artifact.load(embeddings, Kind.EMBEDDINGS).manifest.details["depth"]
    with tracking.stage(run.read_text(), f"evaluate-{_language(embeddings, Kind.EMBEDDINGS)}-{depth}") as stage:
        settings = Recipe.parse(recipe)
        folders = _task_folders(settings, tasks)
        made = evaluate(settings, primary, embeddings, folders, text_folder, blocks_folder, out)
        result = load_language(out)
        scores = {f"masked_accuracy_{name}": score for name, score in result.masked.model_dump().items()}
        if result.task and result.task.initial:
            scores |= {"zero_shot": result.task.accuracy.mean, "zero_shot_initial": result.task.initial.mean}
        stage.record(made, scores, result.cost)
    return (scores, result.task.labels, result.task.confusion) if result.task else (scores, [], [])


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
        facts |= {"zero_shot": result.task.accuracy.mean} if result.task else {}
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


def bundle(recipe: str, run: Path, primary: Path, tasks: Path, embeddings: Sequence[Path], out: Path) -> Scores:
    """Export the champion task with all languages to ONNX, check parity, and register the bundle."""
    from lingraft.export import bundle as export

    settings = Recipe.parse(recipe)
    best = max(_task_folders(settings, tasks), key=_merit)
    with tracking.stage(run.read_text(), "bundle") as stage:
        made = export(primary, best, embeddings, out)
        parity = {f"parity_{key}": float(value) for key, value in made.manifest.details["parity"].items()}
        stage.record(made, parity)
        tracking.register(bundle_name(settings), out, Kind.BUNDLE, stage, {**made.manifest.data_hashes, **parity})
    return parity


def report(recipe: str, run: Path, evaluation: Path, results: Sequence[Path], out: Path) -> str:
    """Write the report of a source and its languages; returns the page's HTML."""
    from lingraft.report import write

    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "report") as stage:
        languages = [load_language(folder) for group in results for folder in sorted(group.iterdir())]
        made = write(load_source(evaluation), languages, _searched(settings), out, settings)
        stage.keep(made, "report")
    tracking.close_run(run.read_text())
    return (out / "report.html").read_text(encoding="utf-8")


def primary_name(recipe: Recipe) -> str:
    """Registered model of the project's primary; its champion's tags say which depth was chosen for a language."""
    return f"{recipe.name}-primary"


def bundle_name(recipe: Recipe) -> str:
    """Registered model of the project's endpoint."""
    return f"{recipe.name}-bundle-{recipe.require_task().name}"


def task_name(recipe: Recipe) -> str:
    """Registered model of the project's finetuned task."""
    return f"{recipe.name}-task-{recipe.require_task().name}"


def embeddings_name(recipe: Recipe, language: str) -> str:
    """Registered model of a language's embeddings."""
    return f"{recipe.name}-embeddings-{language}"


def _task_folders(recipe: Recipe, tasks: Path) -> list[Path]:
    """One folder a finetuning seed; none without a task, and then `tasks` need not exist."""
    return [tasks / f"seed-{seed}" for seed in recipe.task.finetuning.seeds] if recipe.task else []


def _language(folder: Path, kind: Kind) -> str:
    return str(Artifact.load(folder, kind).manifest.language)


def _merit(task: Path) -> tuple[float, int]:
    """Dev accuracy and seed: what the champion has most of, so that it is the same one wherever it is asked for."""
    details = Artifact.load(task, Kind.TASK).manifest.details
    return float(details["dev_accuracy"]), int(details["seed"])


def _cost(made: Artifact) -> Scores:
    return {key: float(value) for key, value in made.manifest.cost.model_dump().items()}


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
