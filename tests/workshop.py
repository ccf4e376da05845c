"""The stages run once, for real, on text that the tests make: folders of artifacts for tests to look at.

`Workshop.make(folder)` goes from text to embeddings and tasks as `tests/tiny.toml` says, in a few seconds. Tests get
one that all workers share as the fixture `workshop`, and leave its folders as they are.
"""

import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.blocks import open_split
from lingraft.data.tokenizer import training
from lingraft.stages import finetune, pretrain
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import MetricsCallback, TrainingMetrics, ignore_metrics
from tests.fixtures import once
from tests.made_up import write

TINY = Path(__file__).with_name("tiny.toml")


@dataclass(frozen=True)
class Workshop:
    """A finished project: folders by language, or by finetuning seed."""

    recipe: Recipe
    texts: dict[str, Path]
    tokenizers: dict[str, Path]
    blocks: dict[str, Path]
    primary: Path
    embeddings: dict[str, Path]
    tasks: dict[int, Path]
    """By finetuning seed."""
    curves: dict[str, list[TrainingMetrics]]
    """What each training stage told whoever watched it."""

    @classmethod
    def shared(cls) -> Self:
        """The one of this run of the tests."""
        folder = once.folder("workshop", cls.make, TINY.read_bytes())
        shop = cls.at(folder)
        told = json.loads((folder / "curves.json").read_text(encoding="utf-8"))
        shop.curves.update({title: [TrainingMetrics(**point) for point in points] for title, points in told.items()})
        return shop

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Where everything lies under a folder, whether it has been made or not."""
        recipe = Recipe.load(TINY).with_folder(folder / "source")
        texts, pieces, packed = (
            {language: folder / noun / language for language in recipe.languages}
            for noun in ("text", "tokenizer", "blocks")
        )
        embeddings = {language: folder / "embeddings" / language for language in recipe.targets}
        tasks = {seed: folder / "task" / str(seed) for seed in recipe.task().finetuning.seeds}
        return cls(recipe, texts, pieces, packed, folder / "primary", embeddings, tasks, {})

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Run every stage under a folder."""
        shop = cls.at(folder)
        recipe, texts, pieces, packed = shop.recipe, shop.texts, shop.tokenizers, shop.blocks
        write(folder / "source", recipe.languages)
        for language in recipe.languages:
            text.prepare(recipe, language, texts[language])
            training.train_tokenizer(recipe, texts[language], pieces[language])
            blocks.build(recipe, texts[language], pieces[language], packed[language])
        pretrain.pretrain(recipe, packed["en"], pieces["en"], shop.primary, shop.curves.setdefault("en", []).append)
        for language, out in shop.embeddings.items():
            watch = shop.curves.setdefault(language, []).append
            shop.adapt(language, recipe.adaptation.depth, out, watch=watch)
        for seed, out in shop.tasks.items():
            watch = shop.curves.setdefault(f"seed {seed}", []).append
            finetune.finetune(recipe, "topic", shop.primary, texts["en"], seed, out, watch)
        told = {title: [point._asdict() for point in points] for title, points in shop.curves.items()}
        (folder / "curves.json").write_text(json.dumps(told), encoding="utf-8")
        return shop

    def adapt(
        self, language: str, depth: int, out: Path, primary: Path | None = None, watch: MetricsCallback = ignore_metrics
    ) -> Artifact:
        """Learn one language's embeddings, over a depth and on a primary of one's own choice."""
        pieces, packed = self.tokenizers[language], self.blocks[language]
        return adapt(self.recipe, primary or self.primary, packed, pieces, depth, out, watch)

    def other_primary(self, out: Path) -> Path:
        """A primary of the same shape and language, from one update with another seed."""
        settings = self.recipe.pretraining.model_copy(update={"steps": 1, "warmup_steps": 0, "seed": 99})
        recipe = self.recipe.model_copy(update={"pretraining": settings})
        pretrain.pretrain(recipe, self.blocks["en"], self.tokenizers["en"], out, ignore_metrics)
        return out

    def tokens(self, language: str) -> Tensor:
        """Four test blocks (4, T) of a language."""
        return open_split(Artifact.load(self.blocks[language], Kind.BLOCKS), "test").all()[:4]


def stopping_after(step: int) -> MetricsCallback:
    """Asks this process to stop when a training has come so far."""

    def watch(point: TrainingMetrics) -> None:
        if point.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return watch


def changed(recipe: Recipe, section: str, **values: Any) -> Recipe:
    """The recipe with other values in one of its sections."""
    return recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=values)})


def copied(artifact: Path, to: Path) -> Path:
    """A copy of an artifact that a test may damage."""
    shutil.copytree(artifact, to)
    return to


def same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether names and all bits are equal."""
    return one.keys() == other.keys() and all(torch.equal(one[name].cpu(), other[name].cpu()) for name in one)
