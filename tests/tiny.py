"""Models of large random weights: what they compute differs plainly from language to language and row to row.

The workshop's models are trained for seconds, so that their logits hardly differ; a test of numbers, such as that of
the export, would not see a table or mask that is left out. These take the workshop's recipe and tokenizers, and need no
training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.data import text
from lingraft.data.tokenizer import training
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, Vocabulary
from lingraft.model.loading import save_vocabulary
from lingraft.tasks.finetuned import save_task
from lingraft.tasks.kinds import kind_of
from tests.fixtures import once
from tests.made_up import TOPICS, write

TINY = Path(__file__).with_name("tiny.toml")


class Pieces(NamedTuple):
    """The tiny recipe and a tokenizer a language: all that models of random weights need."""

    recipe: Recipe
    tokenizers: dict[str, Path]

    @classmethod
    def shared(cls) -> Self:
        """Those of this run of the tests."""
        return cls.at(once.folder("pieces", cls.make, TINY.read_bytes()))

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Where everything lies that was made under a folder."""
        recipe = Recipe.load(TINY).with_folder(folder / "source")
        return cls(recipe, {language: folder / "tokenizer" / language for language in recipe.languages})

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Write text, and train the tokenizers on it, under a folder."""
        recipe = Recipe.load(TINY)
        return cls.trained(recipe.with_folder(write(folder / "source", recipe.languages)), folder)

    @classmethod
    def trained(cls, recipe: Recipe, folder: Path) -> Self:
        """Train the tokenizers on the recipe's text under a folder."""
        found = {language: folder / "tokenizer" / language for language in recipe.languages}
        for language, out in found.items():
            text.prepare(recipe, language, folder / "text" / language)
            training.train_tokenizer(recipe, folder / "text" / language, out)
        return cls(recipe, found)


@dataclass(frozen=True)
class Tiny:
    """Folders of a primary, a task, and each target language's embeddings, all aligned."""

    primary: Path
    task: Path
    embeddings: dict[str, Path]

    @classmethod
    def shared(cls) -> Self:
        """Those of this run of the tests, of the shared pieces."""
        return cls.shared_of(Pieces.shared())

    @classmethod
    def shared_of(cls, pieces: Pieces) -> Self:
        """Those of this run of the tests, of the shared tokenizers and of a recipe of one's own."""

        def make(folder: Path) -> None:
            cls.make(pieces.recipe, pieces.tokenizers, folder)

        folder = once.folder("tiny", make, pieces.recipe.encoder.model_dump_json())
        embeddings = {language: folder / "embeddings" / language for language in pieces.recipe.targets}
        return cls(folder / "primary", folder / "task", embeddings)

    @classmethod
    def make(cls, recipe: Recipe, tokenizers: Mapping[str, Path], folder: Path) -> Self:
        """Write everything under a folder."""
        primary = write_primary(recipe, tokenizers[recipe.source.language], folder / "primary", seed=1)
        task = write_task(recipe, primary, folder / "task", seed=2)
        embeddings = {
            language: write_embeddings(tokenizers[language], primary, folder / "embeddings" / language, seed)
            for seed, language in enumerate(recipe.targets, start=3)
        }
        return cls(primary, task, embeddings)


def write_primary(recipe: Recipe, pieces_folder: Path, out: Path, seed: int) -> Path:
    """Write a primary; another seed, another fingerprint."""
    pieces = Tokenizer.load(pieces_folder)
    encoder = Encoder(recipe.encoder, len(pieces))
    _draw(encoder, seed)
    return save_primary(encoder, pieces, out)


def save_primary(encoder: Encoder, pieces: Tokenizer, out: Path) -> Path:
    """Write a primary of these weights and this tokenizer."""
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", encoder.body_tensors())
        save_vocabulary(draft, encoder.vocabulary, pieces)
        shape = encoder.shape.model_dump(mode="json")
        draft.facts = {"language": pieces.language, "tokenizer_hash": pieces.hash, "details": {"shape": shape}}
    return out


def write_task(
    recipe: Recipe, primary: Path, out: Path, seed: int, scale: float = 1.0, labels: Sequence[str] | None = None
) -> Path:
    """Write a task that belongs to a primary, its weights multiplied by `scale`; its labels are topics if absent."""
    labels = list(labels or (sorted(TOPICS) if recipe.task().has_labels else []))
    net = kind_of(recipe.task()).net(Encoder(recipe.encoder, 0), labels)
    _draw(net, seed, scale)
    return save_finetuned(net, recipe.task(), labels, primary, out)


def save_finetuned(net: Any, task: Task, labels: Sequence[str], primary: Path, out: Path) -> Path:
    """Write a task of these weights that belongs to a primary."""
    body = Artifact.load(primary, Kind.PRIMARY)
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, net)
        details = {"task": task.name, "settings": task.model_dump(mode="json"), "labels": [*labels], "seed": 1}
        draft.facts = {
            "language": body.manifest.language,
            "aligned_with": body.fingerprint,
            "details": details | {"shape": body.manifest.details["shape"], "dev_score": 0.5},
        }
    return out


def write_embeddings(pieces_folder: Path, primary: Path, out: Path, seed: int) -> Path:
    """Write embeddings, for the language of a tokenizer, that belong to a primary."""
    pieces = Tokenizer.load(pieces_folder)
    return save_embeddings(pieces, primary, out, lambda vocabulary: _draw(vocabulary, seed))


def save_embeddings(pieces: Tokenizer, primary: Path, out: Path, draw: Callable[[Vocabulary], object]) -> Path:
    """Write embeddings for a tokenizer that belong to a primary, their values drawn by a function."""
    body = Artifact.load(primary, Kind.PRIMARY)
    vocabulary = Vocabulary(len(pieces.own), body.manifest.details["shape"]["width"])
    draw(vocabulary)
    with artifact.create(out, Kind.EMBEDDINGS) as draft:
        save_vocabulary(draft, vocabulary, pieces)
        draft.facts = {
            "language": pieces.language,
            "tokenizer_hash": pieces.hash,
            "aligned_with": body.fingerprint,
        }
    return out


@torch.no_grad()
def _draw(module: torch.nn.Module, seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.normal_(std=0.5, generator=generator).mul_(scale)
