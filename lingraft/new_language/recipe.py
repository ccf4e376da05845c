"""The recipe by which one language is added to a primary at hand.

What is not asked for is a recipe's, if one is given; otherwise it follows from the primary and the amount of text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.artifacts.remote import uri_of
from lingraft.config.encoder import EncoderShape
from lingraft.config.gate import ALIGNMENT_METRIC
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Precision, Recipe
from lingraft.config.systems import Stage, System
from lingraft.config.tasks import Retrieval
from lingraft.config.translations import ParallelText
from lingraft.data.languages import language_and_script, require_tag
from lingraft.errors import DepthError, RecipeError
from lingraft.model.loading import FreshLayers, LoadedPrimary, require_shape

_LARGEST_VOCABULARY = 50_000
"""The paper's vocabulary of each language (section 3); an imported primary of many languages has more rows."""
_PAIR_VOCABULARY = 15_000
"""Pieces where a language is learned by pairs, which have few words. Of 8,000, 10,000, 15,000 and 30,000 German
pieces, initial rows find 62.3, 64.4, 65.2 and 63.7% of XQuAD's paragraphs first (53,000 pairs, all-MiniLM-L6-v2)."""
_EPOCHS = 10
_FEWEST_STEPS = 500
_MOST_STEPS = 125_000
"""Number of passes over the text, and bounds on the updates: embeddings need some updates however little text there
is, and the paper makes do with the most for any amount (section 3)."""
_PAIR_EPOCHS, _FEWEST_PAIR_STEPS = 1, 100
"""Passes over sentence pairs, and the fewest updates. Over all six layers of all-MiniLM-L6-v2, German questions find
XQuAD's paragraph first in 65.3% of cases after none, in 67.0, 68.5 and 69.1% after a quarter, half and all of 50,000
pairs (454 s of one core). Over the bottom two layers it is 66.2% after 40% of them (65 s), and hardly more after."""
_WARMUP_SHARE = 0.08
"""10,000 of 125,000 updates in the paper (section 3)."""
_BOTTOM_SHARE = 3
"""Layers of an embedding model for each bottom layer of a mini-model that is trained for it."""
_BATCH_BLOCKS = 32
_PAIR_LEARNING_RATE = 3e-3
_LEARNING_RATE = 2e-3
"""Defaults for one accelerator, or none; the paper's 7e-4 goes with 2,048 blocks. A table alone bears a high rate:
5e-4, 1e-3, 2e-3 and 4e-3 found 8.4, 9.5, 10.4 and 11.5% of masked tokens (500 updates of Swahili, 2 of 4 layers of
width 128). Not the highest: deeper and wider primaries, which we have not measured, may bear less."""

_OPTIONS = {
    "adaptation.steps": "--steps",
    "adaptation.batch_blocks": "--batch",
    "adaptation.learning_rate": "--learning-rate",
    "adaptation.seed": "--seed",
    "tokenizer.vocabulary": "--vocabulary",
    "text.column": "--text-column",
    "text.paths": "--text",
    "alignment.parallel": "--pairs",
}
"""Options of the command by the keys of a recipe that they set."""


@dataclass(frozen=True)
class Wanted:
    """Settings that are asked for by name; None leaves one to the recipe, or to the primary and the text."""

    depth: int | None = None
    """Bottom layers of the primary over which the embeddings are learned."""
    vocabulary: int | None = None
    """Pieces, the five special ones included; more than the text supports is then an error."""
    steps: int | None = None
    """Number of updates."""
    batch_blocks: int | None = None
    """Blocks in one update."""
    learning_rate: float | None = None
    """Peak learning rate of the schedule."""
    seed: int | None = None
    """Seed of the initial rows, the order of the text, and the masks."""
    text_column: str | None = None
    """Column or key that holds the text of records."""


@dataclass(frozen=True)
class Resources:
    """Files that show which words of a language and of the source mean the same."""

    pairs: ParallelText | None = None
    """Sentences with their translations."""
    dictionary: str | None = None
    """Words with their translations."""
    source_text: tuple[Path, ...] = ()
    """Text of the source language, such as the documents that are searched: sentence pairs are mined from it."""

    @classmethod
    def of(
        cls,
        pairs: "Path | str | Sequence[Path | str] | None" = None,
        dictionary: Path | str | None = None,
        source_text: "Path | str | Sequence[Path | str]" = (),
    ) -> "Resources":
        """Return resources by their absolute paths; URIs stay as they are."""
        files = [pairs] if isinstance(pairs, Path | str) else [*(pairs or ())]
        if len(files) > 2:
            raise RecipeError(
                f"{len(files)} files of sentence pairs were given: {[*map(str, files)]}. Give one file of "
                "source<TAB>target, or two files line by line, the source's first."
            )
        places = [*map(_absolute, files)]
        texts = [source_text] if isinstance(source_text, Path | str) else source_text
        return cls(
            pairs=(places[0], places[1]) if len(places) == 2 else (places[0] if places else None),
            dictionary=None if dictionary is None else _absolute(dictionary),
            source_text=tuple(map(Path, texts)),
        )

    def section(self, language: str) -> dict[str, Any]:
        """Return a recipe's [alignment] for a language."""
        given = {"parallel": self.pairs, "dictionary": self.dictionary}
        mined = {"mined": True} if self.source_text and not self.pairs else {}
        return {key: {language: file} for key, file in given.items() if file} | mined


@dataclass(frozen=True)
class Basis:
    """The primary that a language is added to, and its mini-model."""

    name: str
    """Folder of the primary."""
    language: str
    """Language of the primary."""
    shape: EncoderShape
    vocabulary: int
    """Rows of the primary's token table."""
    depth: int | None
    """Bottom layers of the primary in MINIPOST's mini-model; None if there is none."""
    fresh_layers: int

    @property
    def is_headless(self) -> bool:
        """Whether there is no MLM head to learn masked tokens with, as with an embedding model."""
        return not self.shape.mlm_heads and self.depth is None

    @classmethod
    def of(cls, folder: Path, primary: LoadedPrimary, mini: FreshLayers | None) -> "Basis":
        """Return the basis that a primary, and a mini-model of it if there is one, offer."""
        depth, fresh = (mini.depth, len(mini.layers)) if mini else (None, 0)
        return replace(cls._of_manifest(folder, primary.manifest), depth=depth, fresh_layers=fresh)

    @classmethod
    def of_artifact(cls, folder: Path) -> "Basis":
        """Return the basis that a primary offers, without opening its weights."""
        return cls._of_manifest(folder, Artifact.load(folder, Kind.PRIMARY).manifest)

    @classmethod
    def _of_manifest(cls, folder: Path, manifest: Manifest) -> "Basis":
        rows = manifest.shapes["vocabulary"]["table_VD"][0]
        return cls(
            name=str(folder),
            language=str(manifest.language),
            shape=manifest.detail("shape", EncoderShape),
            vocabulary=rows,
            depth=None,
            fresh_layers=0,
        )


@dataclass(frozen=True)
class LanguageRecipe:
    """A recipe, and which of its settings still follow from the text."""

    recipe: Recipe
    may_shrink_vocabulary: bool
    """Whether the vocabulary may be smaller than the recipe's, if the text supports no more pieces."""
    steps_by_text: bool
    """Whether the number of updates follows from the amount of text."""

    @classmethod
    def of(
        cls,
        language: str,
        text: Sequence[Path],
        basis: Basis,
        wanted: Wanted,
        recipe: Recipe | None,
        resources: Resources = Resources(),
        retrieval: Retrieval | None = None,
    ) -> "LanguageRecipe":
        """Return the recipe as far as it is known before the text is read.

        Args:
            recipe: recipe of the primary; brings tokenizer, adaptation, split and precision.
            retrieval: how the primary's embedding task makes vectors, as which sentence pairs are learned.
        """
        require_tag(language)
        if wanted.depth is not None:
            _require_depth(wanted.depth, basis)
        if language_and_script(language) == language_and_script(basis.language):
            own = "" if language == basis.language else f", {basis.language!r}"
            raise RecipeError(f"{language!r} is the primary's own language{own}. Give the text and tag of another one.")
        raw = _from_recipe(recipe, basis, wanted) if recipe else _from_primary(basis, wanted)
        if retrieval and not recipe and "pairs" in raw["adaptation"]:
            prefixes = retrieval.query_prefix, retrieval.passage_prefix
            raw["adaptation"]["pairs"] |= {"pooling": retrieval.pooling, "prefixes": prefixes if any(prefixes) else ()}
        if given := resources.section(language):
            raw["alignment"] = given
            raw["adaptation"] |= {"initialisation": Initialisation.ALIGNED}
        elif "alignment" in raw:
            raw["alignment"]["mined"] = False  # from text of the source, which the recipe's own [text] may name
        texts = {language: text} | ({basis.language: resources.source_text} if resources.source_text else {})
        paths = {tag: [str(path.resolve()) for path in found] for tag, found in texts.items()}
        files: dict[str, Any] = {"kind": "files", "paths": paths}
        if recipe and recipe.text.cleaning:
            files["cleaning"] = recipe.text.cleaning.model_dump()
        _set_wanted(files, column=wanted.text_column)
        raw |= {"targets": [language], "text": files, "tasks": []}
        _set_wanted(raw["tokenizer"], vocabulary=wanted.vocabulary)
        _set_wanted(
            raw["adaptation"], batch_blocks=wanted.batch_blocks, learning_rate=wanted.learning_rate, seed=wanted.seed
        )
        if wanted.steps is not None:
            raw["adaptation"] = _with_steps(raw["adaptation"], wanted.steps)
        settled = Recipe.parse(raw, f"what was asked for to add {language!r}", _OPTIONS)
        _require_read(settled, language, wanted, resources)
        return cls(settled, not recipe and wanted.vocabulary is None, not recipe and wanted.steps is None)

    def for_text(self, blocks: int, pair_tokens: int = 0) -> Recipe:
        """Return the recipe whose number of updates suits the training blocks, or the tokens of sentence pairs."""
        if not self.steps_by_text:
            return self.recipe
        settings = self.recipe.adaptation
        epochs, fewest = math.ceil(_EPOCHS * blocks / settings.batch_blocks), _FEWEST_STEPS
        if settings.pairs:
            epochs, fewest = math.ceil(_PAIR_EPOCHS * pair_tokens / settings.pairs.batch_tokens), _FEWEST_PAIR_STEPS
        changed = _with_steps(settings.model_dump(), min(max(epochs, fewest), _MOST_STEPS))
        return self.recipe.model_copy(update={"adaptation": type(settings)(**changed)})


def _absolute(name: Path | str) -> str:
    """The place of a file from any working directory; a URI as it is."""
    return uri_of(name) or str(Path(name).resolve())


def shown(recipe: Recipe, blocks: int, pieces: int, pair_tokens: int = 0) -> str:
    """Return the settings that training depends on for people, with the options that change them.

    `pair_tokens` are those of the sentence pairs that it learns by.
    """
    settings = recipe.adaptation
    step = recipe.steps_over(recipe.adaptation.depth)[Stage.ADAPT]
    fresh_layers = 0 if settings.pairs else step.fresh_layers
    fresh = f" and {fresh_layers} of the mini-model" if fresh_layers else ""
    over = recipe.layers_through(step) - fresh_layers
    whole = "" if settings.pairs or fresh or over < recipe.encoder.layers else ": standard adaptation"
    tokens = recipe.encoder.block_tokens
    if settings.pairs:
        learned = f"{pair_tokens:,} tokens of sentence pairs"
        epochs = settings.steps * settings.pairs.batch_tokens / max(pair_tokens, 1)
        seen, options = f"{settings.steps:,} of {settings.pairs.batch_tokens:,} tokens", "--steps"
    else:
        learned, epochs = f"{blocks:,} blocks of text", settings.steps * settings.batch_blocks / blocks
        seen, options = f"{settings.steps:,} of {settings.batch_blocks} blocks of {tokens} tokens", "--steps, --batch"
    rate = f"{settings.learning_rate:g}, {settings.warmup_steps:,} updates of warm-up"
    lines = (
        f"  learned over   {over} of the primary's {recipe.encoder.layers} layers{fresh}{whole} (--depth)",
        f"  vocabulary     {pieces:,} pieces (--vocabulary)",
        f"  updates        {seen}: {epochs:.3g} epochs of {learned} ({options})",
        f"  learning rate  {rate} (--learning-rate)",
        f"  seed           {settings.seed} (--seed)",
        f"  precision      {recipe.precision}",
    )
    return "\n".join(lines)


def _require_depth(depth: int, basis: Basis) -> None:
    shape = basis.shape
    if basis.is_headless:
        if not 0 < depth <= shape.layers:
            known = f"the primary has {shape.layers} layers. Give 1 to {shape.layers} (--depth)"
            raise DepthError(f"depth {depth} was asked for, but {known}.")
        return
    if basis.depth is not None and depth != basis.depth:
        raise DepthError(
            f"depth {depth} was asked for, but the mini-model is of depth {basis.depth}. "
            "Leave the depth out (--depth), or build a mini-model of that depth."
        )
    if basis.depth is None and depth not in shape.mlm_heads:
        raise DepthError(
            f"depth {depth} was asked for, but the primary of {shape.layers} layers has MLM heads at "
            f"{list(shape.mlm_heads)}. Choose one of these (--depth), or give a mini-model (`lingraft mini`)."
        )


def _require_read(recipe: Recipe, language: str, wanted: Wanted, resources: Resources) -> None:
    """Refuse what was asked for and nothing reads."""
    by_pairs, found = recipe.adaptation.pairs, language in recipe.alignment.parallel or recipe.mines(language)
    unlearned = "" if found or not by_pairs else "nothing is learned without sentence pairs (--pairs or --source-text)"
    reasons = {
        "--dictionary": "the sentence pairs (--pairs) show more" if resources.dictionary and resources.pairs else "",
        "--source-text": "pairs are mined only without --pairs" if resources.source_text and resources.pairs else "",
        "--vocabulary": "the language keeps the source's tokenizer, since no translations show what other pieces mean"
        if wanted.vocabulary and recipe.keeps_tokenizer(language)
        else "",
        "--batch": "batches of sentence pairs hold tokens, not blocks" if wanted.batch_blocks and by_pairs else "",
        "--steps": unlearned if wanted.steps else "",
        "--learning-rate": unlearned if wanted.learning_rate else "",
    }
    if unread := [f"{option}: {reason}" for option, reason in reasons.items() if reason]:
        raise RecipeError(f"options were given that nothing reads. Leave them out: {'; '.join(unread)}.")


def _from_recipe(recipe: Recipe, basis: Basis, wanted: Wanted) -> dict[str, Any]:
    if recipe.builds_mini != (basis.depth is not None):
        given = "no mini-model" if basis.depth is None else "a mini-model"
        raise RecipeError(f"the recipe's system is {recipe.system}, but {given} was given. Correct it, or `system`.")
    if recipe.source.language != basis.language:
        raise RecipeError(
            f"the recipe's source is {recipe.source.language!r}, the primary's language is {basis.language!r}."
        )
    depth = wanted.depth if basis.depth is None else basis.depth
    own = recipe.for_system(recipe.system, depth)
    require_shape(own.encoder, basis.shape, f"the primary in {basis.name}")
    return own.model_dump(mode="json") | {"search": None, "paper": None}


def _from_primary(basis: Basis, wanted: Wanted) -> dict[str, Any]:
    found = defaults(basis)
    if wanted.depth is not None and basis.depth is None:
        found["adaptation"] |= {"depth": wanted.depth} | ({"pairs": {}} if basis.is_headless else {})
    return found | {"name": "add-language", "source": {"language": basis.language, "model": basis.name}}


def defaults(basis: Basis) -> dict[str, Any]:
    """Return what a recipe need not say of a primary that is at hand, as it stands in a recipe."""
    heads, layers = basis.shape.mlm_heads, basis.shape.layers
    training = _with_steps({}, _FEWEST_STEPS) | {"batch_blocks": _BATCH_BLOCKS, "learning_rate": _LEARNING_RATE}
    found: dict[str, Any] = {
        "encoder": basis.shape.model_dump(mode="json"),
        "precision": _precision(),
        "tokenizer": {"vocabulary": min(basis.vocabulary, _LARGEST_VOCABULARY), "borrow": True},
        "adaptation": training | {"depth": basis.depth or (heads[0] if heads else layers)},
        "system": System.MINIJOINT if len(heads) > 1 else System.BL_BASE,
    }
    if basis.depth is not None:
        found |= {"system": System.MINIPOST, "mini": training | {"fresh_layers": basis.fresh_layers}}
    if basis.is_headless:
        found["tokenizer"] |= {"vocabulary": min(basis.vocabulary, _PAIR_VOCABULARY)}
        found["adaptation"] |= {"learning_rate": _PAIR_LEARNING_RATE}
        bottom = math.ceil(layers / _BOTTOM_SHARE)
        by_pairs = {"depth": bottom, "initialisation": Initialisation.ALIGNED, "pairs": {"layers": "all"}}
        found |= {"system": System.MINIPOST, "gate": {"metric": ALIGNMENT_METRIC}, "alignment": {"mined": True}}
        found["encoder"] |= {"dropout": 0.0}  # vectors are learned as they will be asked for
        found["adaptation"] |= by_pairs
    return found


def _precision() -> Precision:
    """Choose a number format without a probe: interrupted work must lead to the same result as uninterrupted work."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if on_gpu else "fp32"


def _with_steps(training: dict[str, Any], steps: int) -> dict[str, Any]:
    share = training["warmup_steps"] / training["steps"] if training else _WARMUP_SHARE
    return training | {"steps": steps, "warmup_steps": round(share * steps)}


def _set_wanted(section: dict[str, Any], **wanted: float | str | None) -> None:
    section |= {name: value for name, value in wanted.items() if value is not None}
