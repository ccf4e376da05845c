"""Scorers: each reads the test examples of a language once, and returns the score of any embeddings on them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.finetuned_models import FinetunedModels
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.jobs.data import LanguageDirs
from lingraft.model.loading import Embeddings, LoadedPrimary
from lingraft.stages.alignment_probe import (
    FEWEST_PAIRS,
    PART,
    AlignmentProbe,
    Reference,
    held_out_lines,
    probe_of,
    probe_of_lines,
)
from lingraft.stages.evaluate import load_tasks, masked_test_blocks
from lingraft.stages.results import SeedScores
from lingraft.stages.task_tests import TaskInputs, task_test
from lingraft.tasks.item_counts import ItemCounts
from lingraft.training import masked_lm, precision


class ScoreWithBaseline(NamedTuple):
    """Score of a language's embeddings, and of the best trivial answer to the same examples."""

    scores: SeedScores
    """Share by finetuning seed; for masked tokens and alignment, which need no finetuning, by pretraining seed."""
    baseline: float
    items: dict[int, ItemCounts]
    """Counts that the scores are made of, by the same seeds."""


Scorer = Callable[[Embeddings], ScoreWithBaseline]
"""A function that swaps in a language's embeddings and returns their score; it reads its examples once."""


def masked_scorer(models: FinetunedModels, target: LanguageDirs, language: str) -> Scorer:
    """Return a scorer for the share of masked tokens that the primary predicts, always at a rate of 15%; the trivial
    answer is the most frequent piece.
    """
    tokenizer = Tokenizer.load(target.tokenizer, language)
    recipe = models.planned.recipe
    blocks_NT = masked_test_blocks(recipe, load_blocks(target.blocks, tokenizer, recipe.encoder.block_tokens))
    baseline = _most_frequent_share(blocks_NT, [*tokenizer.special])
    primary = models.load()

    def score(learned: Embeddings) -> ScoreWithBaseline:
        primary.swap_in(learned)
        return _scored({models.planned.seed: _masked_counts(primary, blocks_NT, models.layers)}, baseline)

    return score


def _masked_counts(primary: LoadedPrimary, blocks_NT: Tensor, layers: int) -> ItemCounts:
    return masked_lm.accuracy_counts(primary.encoder.to(precision.device()), blocks_NT, (layers,))[layers]


def _scored(items: dict[int, ItemCounts], baseline: float) -> ScoreWithBaseline:
    return ScoreWithBaseline(SeedScores(by_seed={seed: one.score for seed, one in items.items()}), baseline, items)


def _most_frequent_share(blocks_NT: Tensor, special: Sequence[int]) -> float:
    counts_V = torch.bincount(blocks_NT.flatten().long(), minlength=max(special) + 1)
    counts_V[special] = 0
    return float(counts_V.max() / counts_V.sum())


def alignment_scorer(
    recipe: Recipe, models: FinetunedModels, reference: Path, target: LanguageDirs, language: str
) -> Scorer:
    """Return a scorer for the share of counterparts found in the other language, both ways, by states of the top layer;
    the trivial answer is a guess.
    """
    primary = models.load()
    tokenizer = Tokenizer.load(target.tokenizer, language)
    top = models.layers
    lines = held_out_lines(recipe, language, "test") if language in recipe.alignment.judged else []
    if lines:
        probe: AlignmentProbe | None = probe_of_lines(primary, lines, tokenizer, (top,))
    else:
        evaluated = Artifact.load(reference, Kind.EVALUATION)
        blocks = load_blocks(target.blocks, tokenizer, recipe.encoder.block_tokens)
        probe = probe_of(
            reference=Reference(evaluated.tensors(PART), evaluated.manifest.fingerprint_of(PART)),
            split="test",
            source=primary.tokenizer,
            pieces=tokenizer,
            text=load_text(target.text, language),
            blocks=open_split(blocks, "test"),
        )
    if probe is None:
        raise ArtifactError(
            f"alignment of {language!r} cannot be measured: its text and the source's have fewer than {FEWEST_PAIRS} "
            "parallel paragraphs or shared pieces in the test split. Give more text."
        )
    pairs = probe

    def score(learned: Embeddings) -> ScoreWithBaseline:
        primary.swap_in(learned)
        return _scored({models.planned.seed: pairs.measure(primary.encoder, (top,))[top].tally}, 1 / pairs.pairs)

    return score


def task_scorer(
    task: Task, models: FinetunedModels, layers: int, dirs: LanguageDirs, language: str
) -> Callable[[Embeddings | LoadedPrimary], ScoreWithBaseline]:
    """Return a scorer for a finetuned task's test examples in a language: its official metric, with each seed."""
    text = load_text(dirs.text, language) if task.reads_text else None
    tokenizer = Tokenizer.load(dirs.tokenizer, language)
    [finetuned] = load_tasks(models.available_folders(task.name, layers)).values()
    test = task_test(TaskInputs(task, finetuned, text, tokenizer, models.load()))
    if test is None:
        raise ArtifactError(
            f"task {task.name!r} looks for paragraphs among those that the evaluation of the source keeps, which a "
            "comparison of systems does not make. Give it test examples of another kind."
        )

    def score(embeddings: Embeddings | LoadedPrimary) -> ScoreWithBaseline:
        judged = {}
        for model in finetuned:
            model.swap_in(embeddings)
            judged[model.seed] = test.judge(model)
        return _scored({seed: one.tally for seed, one in judged.items()}, judged[finetuned[0].seed].baseline)

    return score


def masked_in_source(models: FinetunedModels, source: LanguageDirs, layers: int) -> SeedScores:
    """Score a primary on masked tokens of the source language."""
    primary, recipe = models.load(), models.planned.recipe
    blocks = load_blocks(source.blocks, primary.tokenizer, recipe.encoder.block_tokens)
    counts = _masked_counts(primary, masked_test_blocks(recipe, blocks), layers)
    return SeedScores(by_seed={models.planned.seed: counts.score})


def task_in_source(task: Task, models: FinetunedModels, layers: int, source: LanguageDirs) -> SeedScores:
    """Score a primary's finetuned models on a task in the source language."""
    score = task_scorer(task, models, layers, source, models.planned.recipe.source.language)
    return score(models.load()).scores
