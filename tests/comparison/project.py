"""A small comparison: four systems, three languages of which one has no text, a task on documents and one on pairs."""

from pathlib import Path
from typing import Any

from lingraft.config.recipe import Recipe
from tests.made_up import documents, write

TRAINING = {"batch_blocks": 8, "learning_rate": 3e-3}
FINETUNING = {"epochs": 0.5, "learning_rate": 1e-3}
RECIPE: dict[str, Any] = {
    "name": "small-comparison",
    "source": "en",
    "targets": ["de", "tr", "sw"],
    "precision": "fp32",
    "tokenizer": {"vocabulary": 80},
    "encoder": {"width": 16, "layers": 2, "attention_heads": 2, "mlm_heads": [1, 2], "block_tokens": 24},
    "pretraining": {"steps": 6, **TRAINING},
    "mini": {"steps": 4, "fresh_layers": 1, **TRAINING},
    "adaptation": {"steps": 4, "depth": 1, "checkpoint_every_steps": 4, "early_checkpoints": [1], **TRAINING},
    "tasks": [
        {"name": "topic", "kind": "documents", "finetuning": {**FINETUNING, "seeds": [1, 2]}},
        {"name": "paws-x", "kind": "pairs", "languages": ["en", "de"], "finetuning": {**FINETUNING, "seeds": [3]}},
    ],
    "paper": {"depths": [2]},
    "cluster": {"parallel_languages": 2},
}
CHECKPOINTS = [0, 1, 4]
ARMS = {("BL_BASE", 2), ("BL_SMALL", 1), ("MINIJOINT", 1), ("MINIJOINT", 2), ("MINIPOST", 1)}
"""Systems with their depths."""


def recipe(folder: Path, **changes: Any) -> Recipe:
    """The comparison's recipe, with its text and pairs written into a folder; Swahili has none."""
    write(folder / "text", ("en", "de", "tr"), count=120)
    write_pairs(folder / "pairs", ("en", "de"))
    return recipe_on(folder, **changes)


def recipe_on(folder: Path, **changes: Any) -> Recipe:
    """The comparison's recipe on what is written in a folder."""
    files = {split: {"kind": "file", "path": f"{folder}/pairs/{split}.{{language}}.tsv"} for split in _SIZES}
    topic, pairs = RECIPE["tasks"]
    text = {"kind": "folder", "path": str(folder / "text")}
    return Recipe.parse(RECIPE | {"text": text, "tasks": [topic, pairs | files]} | changes)


_SIZES = {"train": 40, "dev": 12, "test": 20}


def write_pairs(folder: Path, languages: tuple[str, ...]) -> None:
    """Pairs of lines, labelled by whether they are the same line."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        lines = [document["text"].splitlines()[0] for document in documents(language, sum(_SIZES.values()) + 1)]
        rows = [
            f"{line}\t{line if number % 2 else lines[number + 1]}\t{number % 2}"
            for number, line in enumerate(lines[:-1])
        ]
        for split, count in _SIZES.items():
            (folder / f"{split}.{language}.tsv").write_text("\n".join(rows[:count]) + "\n", encoding="utf-8")
            rows = rows[count:]
