"""A recipe on the data of a folder: its paths are those there, and tags, which are many, are judged on a sample."""

from pathlib import Path

from benchmarks.samples import sample
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task, TaskFile
from lingraft.config.text import Folder
from lingraft.errors import RecipeError

TAGGED_MB = 0.2
"""Megabytes of tagged sentences that are judged in a language at every checkpoint: every fourth or fifth."""


def on_data(recipe: Recipe, data: Path, out: Path) -> Recipe:
    """The recipe with its text and examples in a folder.

    Args:
        recipe: recipe whose text is a folder, and whose tasks' examples are files, all relative to the data's.
        data: folder that these paths are in; it is only read.
        out: folder of the samples.

    Raises:
        RecipeError: text or examples come from elsewhere.
    """
    if not isinstance(recipe.text, Folder):
        raise RecipeError(
            f"[text] is of kind {recipe.text.kind!r}; the comparison reads one of kind 'folder' in --data."
        )
    text = recipe.text.model_copy(update={"path": str(data / recipe.text.path)})
    tasks = tuple(_task(recipe, task, data, out) for task in recipe.tasks)
    return recipe.model_copy(update={"text": text, "tasks": tasks})


def _task(recipe: Recipe, task: Task, data: Path, out: Path) -> Task:
    if task.kind == "documents":
        return task
    places = {name: _within(task, name, data) for name in ("train", "dev", "test")}
    if task.kind == "tags":
        places["test"] = _sampled(recipe, task, places["test"], out)
    return task.model_copy(update={name: TaskFile(kind="file", path=place) for name, place in places.items()})


def _within(task: Task, name: str, data: Path) -> str:
    examples = getattr(task, name)
    if not isinstance(examples, TaskFile):
        raise RecipeError(f"task {task.name!r}: {name} is of kind {examples.kind!r}; it must be a file in --data.")
    return str(data / examples.path)


def _sampled(recipe: Recipe, task: Task, path: str, out: Path) -> str:
    """A path for the samples of a path's files, which are made now."""
    kept = str(out / "sample" / task.name / Path(path).name)
    for language in filter(task.covers, recipe.languages):
        sample(Path(path.replace("{language}", language)), TAGGED_MB, Path(kept.replace("{language}", language)))
    return kept
