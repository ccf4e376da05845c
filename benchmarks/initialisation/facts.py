"""Facts behind a comparison's scores: settings, primaries in the source language, and how many texts are cut."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.initialisation.arms import system_of
from lingraft.artifacts.failures import failure_reason
from lingraft.comparison.plan import MASKED, Comparison, PlannedPrimary
from lingraft.comparison.records import load_eval_result
from lingraft.comparison.runner import evaluations_dir, primary_dir
from lingraft.config.tasks import Task
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.jobs.data import LanguageDirs
from lingraft.tasks.examples import load_examples
from lingraft.tasks.kinds import kind_of
from lingraft.training.schedule import TrainingMetrics, read_curve

_DIGITS = 4
_LOSSES = 10
_OPTIMISER = ("learning_rate", "warmup_steps", "weight_decay", "clip_norm")
_TRAINING = ("steps", "batch_blocks", "mask_rate", *_OPTIMISER)
_FINETUNING = ("epochs", "batch_examples", "learning_rate", "warmup_ratio")


def settings(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Return what was set for each training, by its name."""
    recipe = comparison.recipe
    shape = recipe.encoder.model_dump(mode="json", exclude_none=True)
    found = {"encoder": shape | {"vocabulary": recipe.tokenizer.vocabulary}}
    found["pretraining"] = _chosen(recipe.pretraining, _TRAINING)
    if recipe.mini:
        found["step 1b"] = _chosen(recipe.mini, ("fresh_layers", *_TRAINING))
    for start, arm in {arm.start: arm for arm in comparison.arms}.items():
        found[f"adaptation from {start}"] = _chosen(arm.recipe.adaptation, _TRAINING)
    return found | {f"finetuning for {task.name}": _chosen(task.finetuning, _FINETUNING) for task in recipe.tasks}


def _chosen(section: Any, names: tuple[str, ...]) -> dict[str, Any]:
    values = section.model_dump(mode="json", exclude_none=True)
    return {name: values[name] for name in names if name in values}


def primaries(comparison: Comparison, out: Path) -> Iterator[dict[str, Any]]:
    """Yield the finished primaries: loss by update, and scores in the source language."""
    for planned in comparison.primaries:
        if not (curve := read_curve(primary_dir(planned.name, out))):
            continue
        systems = list(dict.fromkeys(system_of(arm, comparison) for arm in planned.arms))
        found = {"name": planned.name, "systems": systems, "seed": planned.seed, "layers": planned.layers}
        tasks = [MASKED, *(task.name for task in comparison.recipe.tasks)]
        yield found | {"loss": _losses(curve), "scores": _scores(planned, tasks, out)}


def _losses(curve: Sequence[TrainingMetrics]) -> dict[str, float]:
    """Losses at equal distances, the last one among them, by the number of updates."""
    every = max(1, -(-len(curve) // _LOSSES))
    return {str(point.step): round(point.loss, 3) for point in curve[::-every][::-1]}


def _scores(planned: PlannedPrimary, tasks: list[str], out: Path) -> dict[str, float]:
    """Scores of the whole primary in the source language, of the tasks that it was judged on."""
    found = {}
    for task in tasks:
        try:
            cells = load_eval_result(evaluations_dir(planned.name, out) / task).source_cells
        except ArtifactError:
            continue
        scores = [cell.scores.mean for cell in cells if cell.depth == planned.layers and cell.scores]
        found |= {task: round(scores[0], _DIGITS)} if scores else {}
    return found


def cut_shares(comparison: Comparison, out: Path) -> dict[str, dict[str, float]]:
    """Return which share of test examples is longer than a block, by task and language."""
    recipe = comparison.recipe
    folders = {language: LanguageDirs.under(out, language).tokenizer for language in recipe.languages}
    tokenizers = [
        Tokenizer.load(folder, language) for language, folder in folders.items() if not failure_reason(folder)
    ]
    return {
        task.name: _cut_shares(comparison, task, tokenizers)
        for task in recipe.tasks
        if task.kind in ("texts", "pairs", "tags")
    }


def _cut_shares(comparison: Comparison, task: Task, tokenizers: Sequence[Tokenizer]) -> dict[str, float]:
    recipe, kind = comparison.recipe, kind_of(task)
    found: dict[str, float] = {}
    labels = list(task.labels) or kind.labels(load_examples(task, "train", recipe.source.language, None))
    for tokenizer in tokenizers:
        if (language := tokenizer.language) == recipe.source.language or task.covers(language):
            examples = load_examples(task, "test", language, None)
            prepared = kind.prepare(examples, labels, tokenizer, recipe.encoder)
            found[language] = round(prepared.truncated / len(examples), _DIGITS)
    return found
