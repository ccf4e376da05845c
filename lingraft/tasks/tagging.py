"""Tags of words: a linear layer at each token; named entities (PAN-X, CoNLL) by span F1, parts of speech by accuracy.

The first piece of each word carries its tag; further pieces are not predicted.

Legend: B batch, T tokens, D width, C tags, N tokens of a whole batch.
"""

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.masking import NOT_PREDICTED
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, init_weights
from lingraft.model.heads import token_layers
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.pairs import pad, word_pieces
from lingraft.tasks.spans import OUTSIDE, span_scores, span_tally
from lingraft.tasks.tagged_sentences import Sentence
from lingraft.tasks.task_kind import TaskEvaluation, by_length, labels_of, number_labels, outputs_of


class Tagger(nn.Module):
    """An encoder's body under its family's head of tokens: features, and a linear layer at each."""

    def __init__(self, encoder: Encoder, tags: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense, self.activation, self.norm = token_layers(encoder.shape)
        self.width = tags
        self.out = nn.Linear(encoder.shape.width, tags)
        for linear in (self.dense, self.out):
            init_weights(linear)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Return logits (B, T, C)."""
        shape = self.encoder.shape
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (shape.layers,), visible_BT, types_BT)[shape.layers]
        features_BTD = self.norm(self.activation(self.dense(hidden_BTD)))
        logits_BTC: Tensor = self.out(F.dropout(features_BTD, shape.dropout, self.training))
        return logits_BTC


class TaggedBatch(NamedTuple):
    """Padded sentences, and the tags of their words' first pieces."""

    tokens_BT: Tensor
    visible_BT: Tensor
    labels_BT: Tensor
    """NOT_PREDICTED at special tokens, further pieces and padding."""


@dataclass(frozen=True)
class Tagged:
    """Tokenized sentences; implements `Prepared`."""

    sentences: Sequence[Sentence]
    tokens: list[list[int]]
    labels: list[list[int]]
    """Tag number of each token; NOT_PREDICTED at special tokens and further pieces."""
    names: tuple[str, ...]
    """Tags by number."""
    pad_id: int
    truncated: int
    """Sentences whose end does not fit a block; words that begin behind it are judged as predicted "O"."""

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Tensor) -> TaggedBatch:
        """Return sentences by their numbers."""
        rows = chosen.tolist()
        tokens_BT, visible_BT = pad([self.tokens[row] for row in rows], self.pad_id)
        return TaggedBatch(tokens_BT, visible_BT, pad([self.labels[row] for row in rows], NOT_PREDICTED)[0])

    def length(self, row: int) -> int:
        """Return the tokens of a sentence."""
        return len(self.tokens[row])

    def targets(self, chosen: Tensor) -> int:
        """Return the number of words; a batch without words counts as one, since its loss is 0."""
        words = sum(label != NOT_PREDICTED for row in chosen.tolist() for label in self.labels[row])
        return max(words, 1)


class Tagging:
    """The kind of task that tags the words of sentences; implements `TaskKind`.

    Args:
        judges_words: whether every word's tag is judged, rather than the named entities that tags stand for.
    """

    def __init__(self, judges_words: bool = False) -> None:
        self._judges_words = judges_words
        self.metric = "accuracy" if judges_words else "F1"

    def labels(self, examples: Sequence[Sentence]) -> list[str]:
        """Return the tags of a training set; see `TaskKind`."""
        return labels_of((tag for sentence in examples for tag in sentence.tags), "tag")

    def net(self, encoder: Encoder, labels: Sequence[str]) -> Tagger:
        """Return the encoder under a new head."""
        return Tagger(encoder, len(labels))

    def prepare(
        self, examples: Sequence[Sentence], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Tagged:
        """Tokenize sentences word by word; words that do not fit a block are left out, their sentences counted."""
        tags = ((f"{sentence.place}: a word", tag) for sentence in examples for tag in sentence.tags)
        numbers = number_labels(labels, tags, "tag")
        words = iter(word_pieces([word for sentence in examples for word in sentence.words], tokenizer))
        room = shape.block_tokens - 2
        tokens, targets, truncated = [], [], 0
        for sentence in examples:
            ids: list[int] = []
            classes: list[int] = []
            for tag in sentence.tags:
                pieces = next(words)
                ids += pieces
                classes += [numbers[tag]] + [NOT_PREDICTED] * (len(pieces) - 1)
            tokens.append([tokenizer.special.begin, *ids[:room], tokenizer.special.end])
            targets.append([NOT_PREDICTED, *classes[:room], NOT_PREDICTED])
            truncated += len(ids) > room
        return Tagged(
            sentences=examples,
            tokens=tokens,
            labels=targets,
            names=tuple(labels),
            pad_id=tokenizer.special.pad,
            truncated=truncated,
        )

    def loss(self, net: Tagger, batch: TaggedBatch) -> Tensor:
        """Return the mean cross-entropy over the words of a batch, a scalar; 0 for a batch without words."""
        logits_NC = outputs_of(net, batch.tokens_BT, batch.visible_BT).flatten(0, 1).float()
        labels_N = batch.labels_BT.flatten().to(logits_NC.device)
        return F.cross_entropy(logits_NC, labels_N, reduction="sum") / (labels_N != NOT_PREDICTED).sum().clamp(min=1)

    def judge(self, net: Tagger, data: Tagged, language: str) -> TaskEvaluation:
        """Return the accuracy of words, or span F1 as seqeval has it, beside that of the best constant tag."""
        true = [sentence.tags for sentence in data.sentences]
        predicted = predicted_tags(net, data)
        if self._judges_words:
            return _word_accuracy(true, predicted)
        found = span_scores(true, predicted)
        return TaskEvaluation(
            score=found.f1,
            baseline=max(span_scores(true, [[tag] * len(tags) for tags in true]).f1 for tag in data.names),
            tally=span_tally(true, predicted),
            others={"precision": found.precision, "recall": found.recall},
        )


def _word_accuracy(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TaskEvaluation:
    right = [sum(map(operator.eq, tags, found)) for tags, found in zip(true, predicted, strict=True)]
    tally = ItemCounts.of(right, [*map(len, true)])
    most_frequent = max(Counter(chain.from_iterable(true)).values())
    return TaskEvaluation(score=tally.score, baseline=most_frequent / sum(map(len, true)), tally=tally)


@torch.inference_mode()
def predicted_tags(net: Tagger, data: Tagged) -> list[list[str]]:
    """Return a tag for every word; "O" for those that do not fit a block."""
    net.eval()
    found = [[OUTSIDE] * len(sentence.words) for sentence in data.sentences]
    for chosen in by_length(data, "judge sentences"):
        batch = data.batch(chosen)
        predicted_BT = outputs_of(net, batch.tokens_BT, batch.visible_BT).argmax(-1).cpu()
        for row, predicted_T, labels_T in zip(chosen.tolist(), predicted_BT, batch.labels_BT, strict=True):
            tags = [data.names[tag] for tag in predicted_T[labels_T != NOT_PREDICTED].tolist()]
            found[row][: len(tags)] = tags
    return found
