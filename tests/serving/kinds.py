"""Bundles of every kind that the endpoint serves, on one tiny primary: bodies and heads of large random weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import DenseLayer, NormaliseLayer, Retrieval, Task, TaskFile, TaskKindName
from lingraft.export import export_bundle as export
from tests.tiny import Tiny, write_task

NAMES: dict[TaskKindName, str] = {
    "pairs": "inference",
    "questions": "reading",
    "tags": "names",
    "retrieval": "search",
}
LABELS: dict[TaskKindName, Sequence[str]] = {"tags": ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")}
WIDTH = 12
"""Width of the vectors of 'retrieval'."""
SETTINGS: dict[TaskKindName, dict[str, Any]] = {
    "retrieval": {
        "retrieval": Retrieval(
            layers=(DenseLayer(kind="dense", width=WIDTH, activation="tanh"), NormaliseLayer(kind="normalise")),
            query_prefix="ba de ",
            passage_prefix="ki lo ",
            prompts={"topic": "pe "},
            default_prompt="topic",
        )
    }
}


def export_all(recipe: Recipe, tiny: Tiny, folder: Path) -> list[Path]:
    """Bundles of all kinds but texts, and of the primary itself, in all languages; tasks lie under `tasks`."""
    embeddings = list(tiny.embeddings.values())
    files = {split: TaskFile(kind="file", path="absent") for split in ("train", "dev", "test")}
    made = []
    for seed, (kind, name) in enumerate(NAMES.items(), start=20):
        settings = recipe.model_copy(update={"tasks": (Task(name=name, kind=kind, **files, **SETTINGS.get(kind, {})),)})
        task = write_task(settings, tiny.primary, folder / "tasks" / kind, seed, labels=LABELS.get(kind))
        export(tiny.primary, task, embeddings, folder / kind)
        made.append(folder / kind)
    export(tiny.primary, None, embeddings, folder / "primary")
    return [*made, folder / "primary"]
