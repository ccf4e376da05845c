"""The method end to end: a language that is the source under another labelling of its vocabulary must be learnable.

Such a language has all the structure of the source, so that a body which is really shared serves both, and the source's
own accuracy says how far embeddings alone can get (as in the paper's section 2, without any difference in syntax).
"""

import json
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.data import blocks, text
from lingraft.data.blocks import open_split
from lingraft.data.tokenizer import training
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.initialisation import initial_rows
from lingraft.stages import build_mini, pretrain
from lingraft.stages.adapt import adapt
from lingraft.stages.evaluate import evaluate_language, evaluate_source
from lingraft.stages.results import LanguageResult, load_language, load_source
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once

pytestmark = pytest.mark.integration
LETTERS = string.ascii_lowercase[:24]
PIECES = len(DEFAULT_SPECIAL_IDS) + len(LETTERS) + 1
"""Every letter is a piece, and so is the space that SentencePiece puts before a text."""
TRAINING = {"batch_blocks": 32, "learning_rate": 5e-3, "warmup_steps": 30}
RECIPE = {
    "name": "relabelled",
    "source": "en",
    "targets": ["de"],
    "precision": "fp32",
    "tokenizer": {"vocabulary": PIECES, "character_coverage": 1.0},
    "pretraining": {"steps": 350, **TRAINING},
    "mini": {"steps": 150, "fresh_layers": 1, **TRAINING},
}


class Size(NamedTuple):
    """What a system is tried with; fewer layers are learned sooner."""

    layers: int
    depth: int
    steps: int
    """Updates of the adaptation."""

    @property
    def sections(self) -> dict[str, Any]:
        """What the recipe says of it."""
        encoder = {"layers": self.layers, "mlm_heads": [self.depth, self.layers], "width": 48, "attention_heads": 2}
        training = TRAINING | {"learning_rate": 1e-2}
        return {
            "encoder": encoder | {"block_tokens": 24},
            "adaptation": training | {"steps": self.steps, "depth": self.depth},
        }


SIZES = {System.MINIJOINT: Size(layers=2, depth=1, steps=120), System.MINIPOST: Size(layers=4, depth=2, steps=200)}
"""MINIPOST's mini-model, which has a fresh layer, needs a deeper primary to be the shallower of the two."""


def chained_letters(documents: int, length: int) -> list[str]:
    """Texts in which every letter allows two others after it, so that neighbours tell what a masked one was.

    Every letter also follows two others, so that all are equally frequent: what is frequent is learned without a body.
    """
    generator = random.Random(1)
    orders = [generator.sample(LETTERS, len(LETTERS)) for _ in range(2)]
    after = dict(zip(LETTERS, zip(*orders, strict=True), strict=True))
    texts = []
    for _ in range(documents):
        letters = [generator.choice(LETTERS)]
        while len(letters) < length:
            letters.append(generator.choice(after[letters[-1]]))
        texts.append("".join(letters))
    return texts


@dataclass(frozen=True)
class Languages:
    """The source and its relabelling: text, tokenizer and blocks of each."""

    text: Path
    folder: Path

    def recipe(self, system: System) -> Recipe:
        return Recipe.parse(RECIPE | SIZES[system].sections | {"text": {"kind": "folder", "path": str(self.text)}})

    def of(self, noun: str, language: str) -> Path:
        return self.folder / noun / language

    @classmethod
    def at(cls, folder: Path) -> Self:
        return cls(folder, folder / "made")

    @classmethod
    def make(cls, folder: Path) -> None:
        lines = [
            json.dumps({"text": line, "name": str(number)}) for number, line in enumerate(chained_letters(500, 100))
        ]
        for language in ("en", "de"):
            (folder / f"{language}.jsonl").write_text("\n".join(lines))
        made = cls.at(folder)
        recipe = made.recipe(System.MINIJOINT)  # of which only what is the same of every system counts here
        for language in ("en", "de"):
            text.prepare(recipe, language, made.of("text", language))
        training.train_tokenizer(recipe, made.of("text", "en"), made.of("tokenizer", "en"))
        blocks.build(recipe, made.of("text", "en"), made.of("tokenizer", "en"), made.of("blocks", "en"))
        made._relabel()

    def _relabel(self) -> None:
        """The same tokenizer and blocks for the target, but every id that is not special stands for another piece."""
        tokens = Artifact.load(self.of("tokenizer", "en"), Kind.TOKENIZER)
        with artifact.create(self.of("tokenizer", "de"), Kind.TOKENIZER) as draft:
            for name in tokens.manifest.files:
                (draft.folder / name).write_bytes((tokens.folder / name).read_bytes())
            draft.facts = {"language": "de", "tokenizer_hash": tokens.manifest.tokenizer_hash}
        first = len(DEFAULT_SPECIAL_IDS)
        labels = torch.arange(PIECES, dtype=torch.int32)
        labels[first:] = labels[first:][torch.randperm(PIECES - first, generator=torch.Generator().manual_seed(1))]
        source = Artifact.load(self.of("blocks", "en"), Kind.BLOCKS)
        with artifact.create(self.of("blocks", "de"), Kind.BLOCKS) as draft:
            for part in source.manifest.fingerprints:
                ids_NT = source.tensors(part)["tokens_NT"]
                draft.tensors(part, {"tokens_NT": labels[ids_NT.long()].to(ids_NT.dtype)})
            manifest = source.manifest
            draft.facts = {"language": "de", "tokenizer_hash": manifest.tokenizer_hash, "details": manifest.details}


@pytest.fixture(autouse=True)
def at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows begin at random: pieces of the target that read like the source's stand for others."""
    monkeypatch.setattr(initial_rows, "shared_pieces", lambda *_: {})


@pytest.fixture(scope="module")
def languages() -> Languages:
    return Languages.at(once.folder("relabelled", Languages.make, json.dumps(RECIPE)))


@dataclass(frozen=True)
class Outcome:
    source: float
    """Masked accuracy of the primary in the source language."""
    mini: LanguageResult
    standard: LanguageResult
    """Over all layers of the same primary."""


def outcome(languages: Languages, system: System, out: Path) -> Outcome:
    size, given = SIZES[system], languages.recipe(system)
    recipe = given.for_system(system)
    packed, pieces, read = (
        {name: languages.of(noun, name) for name in ("en", "de")} for noun in ("blocks", "tokenizer", "text")
    )
    primary = out / "primary"
    pretrain.pretrain(recipe, packed["en"], pieces["en"], primary, ignore_metrics)
    evaluate_source(recipe, primary, [], read["en"], packed["en"], out / "source")
    mini = None
    if recipe.builds_mini:
        mini = out / "mini"
        build_mini.build_mini(recipe, primary, packed["en"], mini, ignore_metrics)

    def learned(settings: Recipe, depth: int, fresh: Path | None) -> LanguageResult:
        folder = out / f"over-{depth}"
        adapt(settings, primary, packed["de"], pieces["de"], depth, folder, ignore_metrics, mini=fresh)
        evaluate_language(settings, primary, folder, [], read["de"], packed["de"], folder / "judged", mini=fresh)
        return load_language(folder / "judged")

    standard = recipe if system is System.MINIJOINT else given.for_system(System.BL_BASE)
    return Outcome(
        source=load_source(out / "source").masked_by_depth[size.layers],
        mini=learned(recipe, size.depth, mini),
        standard=learned(standard, size.layers, None),
    )


@pytest.mark.parametrize("system", SIZES)
def test_a_relabelled_source_is_learned_over_the_mini_model_almost_as_well_as_over_all_layers(
    languages: Languages, tmp_path: Path, system: System
) -> None:
    found = outcome(languages, system, tmp_path)
    before = found.mini.masked.primary_initial
    gap = found.source - before
    assert gap > 0.4, "the source itself must be learned, or this says nothing"
    assert found.mini.masked.primary - before >= 0.6 * gap
    assert found.mini.masked.primary >= 0.9 * found.standard.masked.primary
    assert found.mini.cost.flops < found.standard.cost.flops


def test_the_relabelling_leaves_no_piece_where_it_was(languages: Languages) -> None:
    """Or a body that was not shared could pass."""
    blocks = (Artifact.load(languages.of("blocks", name), Kind.BLOCKS) for name in ("en", "de"))
    source_NT, target_NT = (open_split(found, "test").all() for found in blocks)
    same = (source_NT == target_NT).float().mean()
    special = (source_NT < len(DEFAULT_SPECIAL_IDS)).float().mean()
    assert same - special < 0.1
    assert len(Tokenizer.load(languages.of("tokenizer", "de"))) == PIECES
