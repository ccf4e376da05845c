"""What the comparison scores a language's embeddings by: finding masked tokens, and the tasks of the recipe.

A measure is made once and then asked about every checkpoint, so that examples are read and cut into pieces once.
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
from lingraft.stages.task_scores import load_tasks
from lingraft.tasks.loading import load_examples
from lingraft.training import masked_lm, precision


class ScoreWithBaseline(NamedTuple):
    """What one language's embeddings score."""

    by_seed: dict[int, float]
    """Share by finetuning seed; for masked tokens, which need no finetuning, by the primary's pretraining seed."""
    baseline: float
    """Of the best trivial answer to the same examples."""


EmbeddingsScorer = Callable[[Embeddings], ScoreWithBaseline]
"""Swaps a language's embeddings in, and scores them."""
TaskScorer = Callable[[Embeddings | Primary], ScoreWithBaseline]
"""The same, and for the primary's own embeddings too."""


def masked_token_scorer(primary: Primary, blocks: Artifact, seed: int) -> EmbeddingsScorer:
    """Share of masked tokens of the test split that a primary finds with a language's embeddings, always at 15%.

    The trivial answer is the piece that is most frequent there.

    Args:
        primary: the embeddings' own.
        blocks: of the language.
        seed: of the primary's pretraining.
    """
    blocks_NT = open_split(blocks, "test").all()
    top = primary.encoder.shape.layers

    def score(learned: Embeddings) -> ScoreWithBaseline:
        primary.swap_in(learned)
        found = masked_lm.accuracy(primary.encoder.to(precision.device()), blocks_NT, (top,))[top]
        return ScoreWithBaseline({seed: found}, _most_frequent_share(blocks_NT, learned.tokenizer.special))

    return score


def alignment_scorer(primary: Primary, probe: AlignmentProbe, seed: int) -> EmbeddingsScorer:
    """Share of counterparts found in the other language, both directions, by hidden states after the top layer.

    The trivial answer is a guess.

    Args:
        primary: the embeddings' own.
        probe: of the language's test split.
        seed: of the primary's pretraining.
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
    """Score of a finetuned task on its test examples in a language, with each seed, by its official metric.

    Args:
        task: says where the examples are.
        finetuned: the task's folders, one a seed.
        text: of the language, for a task whose kind is 'documents'.
        tokenizer: of the language.

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
