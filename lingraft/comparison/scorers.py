"""Scorers of a language's embeddings: masked tokens, alignment, and the tasks of the recipe.

A scorer is created once and then called with every checkpoint, so that examples are read and tokenized once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.config.tasks import Task
from lingraft.data.blocks import open_split
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.loading import Embeddings, Primary
from lingraft.stages.alignment_probe import AlignmentProbe
from lingraft.stages.evaluate import load_tasks
from lingraft.tasks.loading import load_examples
from lingraft.training import masked_lm, precision


class ScoreWithBaseline(NamedTuple):
    """Score of a language's embeddings, and of the trivial answer to the same examples."""

    by_seed: dict[int, float]
    """Share by finetuning seed; for masked tokens, which need no finetuning, by the primary's pretraining seed."""
    baseline: float
    """Score of the best trivial answer."""


EmbeddingsScorer = Callable[[Embeddings], ScoreWithBaseline]
"""A function that swaps in a language's embeddings and returns their score."""
TaskScorer = Callable[[Embeddings | Primary], ScoreWithBaseline]
"""An `EmbeddingsScorer` that accepts the primary's own embeddings too."""


def masked_token_scorer(primary: Primary, blocks: Artifact, seed: int) -> EmbeddingsScorer:
    """Return a scorer for the share of masked tokens of the test split that a primary predicts, always at a rate of
    15%.

    The trivial answer is the most frequent piece.

    Args:
        primary: primary that the embeddings belong to.
        blocks: blocks of the language.
        seed: pretraining seed of the primary.
    """
    blocks_NT = open_split(blocks, "test").all()
    top = primary.encoder.shape.layers

    def score(learned: Embeddings) -> ScoreWithBaseline:
        primary.swap_in(learned)
        found = masked_lm.accuracy(primary.encoder.to(precision.device()), blocks_NT, (top,))[top]
        return ScoreWithBaseline({seed: found}, _most_frequent_share(blocks_NT, learned.tokenizer.special))

    return score


def alignment_scorer(primary: Primary, probe: AlignmentProbe, seed: int) -> EmbeddingsScorer:
    """Return a scorer for the share of counterparts found in the other language, both ways, by states of the top layer.

    The trivial answer is a guess.

    Args:
        primary: primary that the embeddings belong to.
        probe: alignment probe of the language's test split.
        seed: pretraining seed of the primary.
    """
    top = primary.encoder.shape.layers

    def score(learned: Embeddings) -> ScoreWithBaseline:
        primary.swap_in(learned)
        return ScoreWithBaseline({seed: probe.measure(primary.encoder, (top,))[top].scores.accuracy}, 1 / probe.pairs)

    return score


def _most_frequent_share(blocks_NT: Tensor, special: SpecialIds) -> float:
    """Share of the most frequent piece among those that may be masked."""
    counts_V = torch.bincount(blocks_NT.flatten().long(), minlength=max(special) + 1)
    counts_V[list(special)] = 0
    return float(counts_V.max() / counts_V.sum())


def task_scorer(task: Task, finetuned: Sequence[Path], text: Artifact | None, tokenizer: Tokenizer) -> TaskScorer:
    """Return a scorer for a finetuned task's test examples in a language: its official metric, with each seed.

    Args:
        task: task that names the examples.
        finetuned: folders of the finetuned task, one a seed.
        text: text of the language, for a task whose kind is 'documents'.
        tokenizer: tokenizer of the language.

    Raises:
        TextError: test examples are missing or damaged, or have labels that the task does not know.
        ArtifactError: a folder is not a task, or seeds differ in their labels.
    """
    [models] = load_tasks(finetuned).values()
    first = models[0]
    language = tokenizer.language
    data = first.kind.prepare(load_examples(task, "test", language, text), first.labels, tokenizer, first.shape)

    def score(embeddings: Embeddings | Primary) -> ScoreWithBaseline:
        judged = {}
        for model in models:
            model.swap_in(embeddings)
            judged[model.seed] = model.kind.judge(model.net.to(precision.device()), data, language)
        return ScoreWithBaseline({seed: one.score for seed, one in judged.items()}, judged[first.seed].baseline)

    return score
