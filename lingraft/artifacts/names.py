"""Names of a project's models in the registry."""

from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import PRIMARY

SEED = "seed-"
"""Prefix of the alias and the folder of a task; the finetuning seed follows."""


def primary_name(recipe: Recipe) -> str:
    """The project's primary; its champion's tags say which depth was chosen for a language."""
    return primary_of(recipe.name)


def mini_name(recipe: Recipe) -> str:
    """The mini-model that step 1b built, for systems that have one."""
    return f"{recipe.name}-mini-{recipe.system.lower()}-{recipe.adaptation.depth}"


def task_name(recipe: Recipe, task: str) -> str:
    """A finetuned task, each seed under an alias of its own."""
    return task_of(recipe.name, task)


def embeddings_name(recipe: Recipe, language: str) -> str:
    """A language's embeddings."""
    return embeddings_of(recipe.name, language)


def primary_of(project: str) -> str:
    """The primary of a project of which no recipe is at hand."""
    return f"{project}-primary"


def task_of(project: str, task: str) -> str:
    """A finetuned task, of a project of which no recipe is at hand."""
    return f"{project}-task-{task}"


def embeddings_of(project: str, language: str) -> str:
    """A language's embeddings, of a project of which no recipe is at hand."""
    return f"{project}-embeddings-{language}"


def bundle_of(project: str, name: str) -> str:
    """The bundle of a task, or of the primary, of a project of which no recipe is at hand."""
    return f"{project}-bundle-{name}"


def bundle_name(recipe: Recipe, name: str) -> str:
    """A body and the tables of all languages, as the endpoint serves them; `name` is one of `bundled`."""
    return bundle_of(recipe.name, name)


def bundle_kinds(recipe: Recipe) -> tuple[str, ...]:
    """What pipelines bundle: every task by its name, and the primary itself if the recipe says so."""
    return (*(task.name for task in recipe.tasks), *((PRIMARY,) if recipe.serve_primary else ()))


def task_folders(recipe: Recipe, tasks: Path) -> list[Path]:
    """Return a folder for each task and finetuning seed; without tasks none, and `tasks` need not exist."""
    return [tasks / task.name / f"{SEED}{seed}" for task in recipe.tasks for seed in task.finetuning.seeds]
