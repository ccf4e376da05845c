"""Named entities (PAN-X, CoNLL): a linear layer over the last layer's states, span F1.

The first piece of each word carries its tag; further pieces are not predicted.

Legend: B batch, T tokens, D width, C tags, N tokens of a whole batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.masking import NOT_PREDICTED
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, init_weights
from lingraft.tasks.kinds import TaskEvaluation
from lingraft.tasks.labels import labels_of, numbered
from lingraft.tasks.lengths import by_length
from lingraft.tasks.pairs import pad
from lingraft.tasks.spans import OUTSIDE, span_scores, span_tally
from lingraft.tasks.tagged_sentences import Sentence, read_sentences, sentences_of
from lingraft.tasks.word_pieces import word_pieces


class Tagger(nn.Module):
    """An encoder's body under a linear layer at each token."""

    def __init__(self, encoder: Encoder, tags: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.out = nn.Linear(encoder.shape.width, tags)
        init_weights(self.out)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Logits (B, T, C)."""
        shape = self.encoder.shape
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (shape.layers,), visible_BT, types_BT)[shape.layers]
        logits_BTC: Tensor = self.out(F.dropout(hidden_BTD, shape.dropout, self.training))
        return logits_BTC


class Batch(NamedTuple):
    """Padded sentences, and the tags of their words' first pieces."""

    tokens_BT: Tensor
    visible_BT: Tensor
    labels_BT: Tensor
    """NOT_PREDICTED at special tokens, further pieces and padding."""


@dataclass(frozen=True)
class Tagged:
    """Tokenized sentences."""

    sentences: Sequence[Sentence]
    tokens: list[list[int]]
    labels: list[list[int]]
    """Of each token; NOT_PREDICTED at special tokens and further pieces."""
    names: tuple[str, ...]
    """Tags by number."""
    pad_id: int
    truncated: int
    """Sentences whose end does not fit a block; words that begin behind it are judged as predicted "O"."""

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Tensor) -> Batch:
        """The sentences of the numbers given."""
        rows = chosen.tolist()
        tokens_BT, visible_BT = pad([self.tokens[row] for row in rows], self.pad_id)
        return Batch(tokens_BT, visible_BT, pad([self.labels[row] for row in rows], NOT_PREDICTED)[0])

    def length(self, row: int) -> int:
        """Tokens of a sentence."""
        return len(self.tokens[row])

    def targets(self, chosen: Tensor) -> int:
        """One tag a word; a batch without words counts as one, since its loss is 0."""
        words = sum(label != NOT_PREDICTED for row in chosen.tolist() for label in self.labels[row])
        return max(words, 1)


class Tagging:
    """Finding the named entities of sentences that are given as words."""

    metric = "F1"

    def read(self, path: Path, language: str) -> list[Sentence]:
        """Sentences of a file; see `tagged_sentences` for the formats.

        Raises:
            TextError: the file cannot be read, holds no sentence, or a word without a tag or with an unknown one.
        """
        return read_sentences(path, language)

    def from_rows(self, rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str]) -> list[Sentence]:
        """Sentences from the rows of a Hugging Face dataset.

        Raises:
            TextError: a column is missing, words and tags differ in number, or a tag is unknown.
        """
        return sentences_of(rows, origin, names)

    def labels(self, examples: Sequence[Sentence]) -> list[str]:
        """All tags of a training set, sorted.

        Raises:
            TextError: fewer than two tags.
        """
        return labels_of((tag for sentence in examples for tag in sentence.tags), "tag")

    def net(self, encoder: Encoder, labels: Sequence[str]) -> Tagger:
        """The encoder under a new head."""
        return Tagger(encoder, len(labels))

    def prepare(
        self, examples: Sequence[Sentence], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Tagged:
        """Tokenize sentences word by word; words that do not fit a block are left out, their sentences counted.

        Raises:
            TextError: a sentence has a tag that is not one of the task's.
        """
        tags = ((f"{sentence.place}: a word", tag) for sentence in examples for tag in sentence.tags)
        numbers = numbered(labels, tags, "tag")
        words = iter(word_pieces([word for sentence in examples for word in sentence.words], tokenizer))
        room = shape.block_tokens - 2
        tokens, targets, truncated = [], [], 0
        for sentence in examples:
            pieces = [next(words) for _ in sentence.words]
            spread = (_spread(numbers[tag], word) for tag, word in zip(sentence.tags, pieces, strict=True))
            ids, classes = list(chain.from_iterable(pieces)), list(chain.from_iterable(spread))
            tokens.append([tokenizer.special.begin, *ids[:room], tokenizer.special.end])
            targets.append([NOT_PREDICTED, *classes[:room], NOT_PREDICTED])
            truncated += len(ids) > room
        return Tagged(examples, tokens, targets, tuple(labels), tokenizer.special.pad, truncated)

    def loss(self, net: Tagger, batch: Batch) -> Tensor:
        """Mean cross-entropy over the words of a batch, a scalar; 0 for a batch without words."""
        labels_N = batch.labels_BT.flatten().to(net.out.weight.device)
        logits_NC = _logits(net, batch).flatten(0, 1).float()
        return F.cross_entropy(logits_NC, labels_N, reduction="sum") / (labels_N != NOT_PREDICTED).sum().clamp(min=1)

    def judge(self, net: Tagger, data: Tagged, language: str) -> TaskEvaluation:
        """Span F1 as seqeval has it, beside that of one and the same tag for every word, whichever is best."""
        true = [sentence.tags for sentence in data.sentences]
        predicted = predicted_tags(net, data)
        found = span_scores(true, predicted)
        constant = (span_scores(true, [[tag] * len(tags) for tags in true]).f1 for tag in data.names)
        others = {"precision": found.precision, "recall": found.recall}
        return TaskEvaluation(found.f1, max(constant), span_tally(true, predicted), others)


@torch.inference_mode()
def predicted_tags(net: Tagger, data: Tagged) -> list[list[str]]:
    """A tag for every word; "O" for those that do not fit a block."""
    net.eval()
    found = [[OUTSIDE] * len(sentence.words) for sentence in data.sentences]
    for chosen in by_length(data, "judge sentences"):
        batch = data.batch(chosen)
        predicted_BT = _logits(net, batch).argmax(-1).cpu()
        for row, predicted_T, labels_T in zip(chosen.tolist(), predicted_BT, batch.labels_BT, strict=True):
            tags = [data.names[tag] for tag in predicted_T[labels_T != NOT_PREDICTED].tolist()]
            found[row][: len(tags)] = tags
    return found


def _spread(number: int, pieces: Sequence[int]) -> list[int]:
    return [number] + [NOT_PREDICTED] * (len(pieces) - 1)


def _logits(net: Tagger, batch: Batch) -> Tensor:
    device = net.out.weight.device
    logits_BTC: Tensor = net(batch.tokens_BT.to(device), batch.visible_BT.to(device))
    return logits_BTC
