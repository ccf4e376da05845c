"""Bundles of every kind that the endpoint serves, on one tiny primary: bodies and heads of large random weights."""

from collections.abc import Sequence
from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task, TaskFile, TaskKindName
from lingraft.export import export_bundle as export
from tests.tiny import Tiny, write_task

NAMES: dict[TaskKindName, str] = {"pairs": "inference", "questions": "reading", "tags": "names"}
LABELS: dict[TaskKindName, Sequence[str]] = {"tags": ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")}


def export_all(recipe: Recipe, tiny: Tiny, folder: Path) -> list[Path]:
    """Bundles of pairs, questions, tags and of the primary itself, in all languages; tasks lie under `tasks`."""
    embeddings = list(tiny.embeddings.values())
    files = {split: TaskFile(kind="file", path="absent") for split in ("train", "dev", "test")}
    made = []
    for seed, (kind, name) in enumerate(NAMES.items(), start=20):
        settings = recipe.model_copy(update={"tasks": (Task(name=name, kind=kind, **files),)})
        task = write_task(settings, tiny.primary, folder / "tasks" / kind, seed, labels=LABELS.get(kind))
        export(tiny.primary, task, embeddings, folder / kind)
        made.append(folder / kind)
    export(tiny.primary, None, embeddings, folder / "primary")
    return [*made, folder / "primary"]
