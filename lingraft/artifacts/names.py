"""Names of a project's models in the registry."""

from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import PRIMARY

SEED = "seed-"
"""Prefix of the alias and the folder of a task; the finetuning seed follows."""


def primary_name(recipe: Recipe) -> str:
    """Return the name of the project's primary, whose champion's tags have the depth chosen for each language."""
    return primary_of(recipe.name)


def mini_name(recipe: Recipe) -> str:
    """Return the name of the mini-model of step 1b, for systems that have one."""
    return f"{recipe.name}-mini-{recipe.system.lower()}-{recipe.adaptation.depth}"


def task_name(recipe: Recipe, task: str) -> str:
    """Return the name of a finetuned task; each seed has an alias of its own."""
    return task_of(recipe.name, task)


def embeddings_name(recipe: Recipe, language: str) -> str:
    """Return the name of a language's embeddings."""
    return embeddings_of(recipe.name, language)


def primary_of(project: str) -> str:
    """Return the name of a project's primary."""
    return f"{project}-primary"


def task_of(project: str, task: str) -> str:
    """Return the name of a project's finetuned task."""
    return f"{project}-task-{task}"


def embeddings_of(project: str, language: str) -> str:
    """Return the name of the embeddings of a project's language."""
    return f"{project}-embeddings-{language}"


def bundle_of(project: str, name: str) -> str:
    """Return the name of the bundle of a project's task, or of its primary."""
    return f"{project}-bundle-{name}"


def bundle_name(recipe: Recipe, name: str) -> str:
    """Return the name of the bundle of a task or of the primary; `name` is one of `bundle_kinds`."""
    return bundle_of(recipe.name, name)


def bundle_kinds(recipe: Recipe) -> tuple[str, ...]:
    """Return what pipelines bundle: every task by its name, and the primary itself if the recipe says so."""
    return (*(task.name for task in recipe.tasks), *((PRIMARY,) if recipe.serve_primary else ()))


def task_folders(recipe: Recipe, tasks: Path) -> list[Path]:
    """Return a folder for each task and finetuning seed; without tasks none, and `tasks` need not exist."""
    return [tasks / task.name / f"{SEED}{seed}" for task in recipe.tasks for seed in task.seeds]
