"""The interface of every kind of task, so that finetuning, evaluation and export treat all tasks alike.

Four kinds: `classification` (one text or a pair), `question_answering` (extractive), `tagging` (named entities) and
`retrieval` (vectors of queries and passages).

Legend: N rows of a prepared set of examples.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.console import with_progress
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TextError
from lingraft.model.encoder import Encoder
from lingraft.tasks.item_counts import ItemCounts

_BATCH = 64


@dataclass(frozen=True)
class TaskEvaluation:
    """Scores of a finetuned model on a set of examples, as shares from 0 to 1."""

    score: float
    """The task's official metric."""
    baseline: float
    """Score of the best trivial answer on these examples, for example the most frequent class."""
    tally: ItemCounts
    """Counts that the score is made of, in the order of the examples."""
    others: dict[str, float] = field(default_factory=dict)
    """Further official metrics, such as exact match."""
    confusion_CC: Tensor | None = None
    """Counts (C true, C predicted), where there are classes."""


class TaskNet(Protocol):
    """An `nn.Module` of an encoder's body and the task's head; parameters outside `encoder.` are the head."""

    encoder: Encoder
    width: int
    """Size of the output's last dimension: classes, tags, 2 for start and end, or the numbers of a vector."""

    def __call__(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor: ...


class Rows(Protocol):
    """Tokenized rows of unlike length."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor) -> Any:
        """Return rows by their numbers, padded alike: a record of tensors."""

    def length(self, row: int) -> int:
        """Return the tokens of a row, without padding."""


class Prepared(Rows, Protocol):
    """Tokenized examples; a row is an example, or a window where an example needs several."""

    @property
    def truncated(self) -> int:
        """Number of examples of which only a part is seen."""

    def targets(self, chosen: Tensor) -> int:
        """Return how many targets the loss of these rows is the mean of, which is their weight in a larger batch."""


class TaskKind(Protocol):
    """Head, loss, batches and official metric of one kind of task; `kinds` chooses it by the name of the kind."""

    metric: str
    """Name of the official metric: 'accuracy', 'F1' or 'accuracy_at_1'."""

    def labels(self, examples: Sequence[Any]) -> list[str]:
        """Return the labels of a training set, sorted; none for question answering."""

    def net(self, encoder: Encoder, labels: Sequence[str]) -> nn.Module:
        """Return the encoder under a new head (a `TaskNet`), drawn from torch's global generator."""

    def prepare(
        self, examples: Sequence[Any], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Prepared:
        """Tokenize examples for a body of this shape."""

    def loss(self, net: Any, batch: Any) -> Tensor:
        """Return the loss of a batch, a scalar, on the device of the net's head."""

    def judge(self, net: Any, data: Any, language: str) -> TaskEvaluation:
        """Score a model by the official metric; the net is put into evaluation mode."""


def labels_of(found: Iterable[str], noun: str) -> list[str]:
    """Return all labels of a training set, sorted; `noun` names a label in errors, such as 'tag'."""
    names = sorted(set(found))
    if len(names) < 2:
        raise TextError(
            f"a task needs two or more {noun}s to tell apart; the training examples have {names}. Add some with others."
        )
    return names


def number_labels(labels: Sequence[str], found: Iterable[tuple[str, str]], noun: str) -> dict[str, int]:
    """Return the number of each of a task's labels, and check those of examples or words with their places."""
    numbers = {name: number for number, name in enumerate(labels)}
    for place, label in found:
        if label not in numbers:
            raise TextError(
                f"{place} has {noun} {label!r}; the task knows {list(labels)}. "
                f"Correct the {noun}, or finetune with examples that have it."
            )
    return numbers


def outputs_of(net: nn.Module, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
    """Return the outputs of a `TaskNet` for padded texts, which are moved to its device."""
    device = next(net.parameters()).device
    types_BT = None if types_BT is None else types_BT.to(device)
    outputs: Tensor = net(tokens_BT.to(device), visible_BT.to(device), types_BT)
    return outputs


def lengths(data: Rows) -> Tensor:
    """Return the tokens of every row (N), int64."""
    return torch.tensor([data.length(row) for row in range(len(data))])


def by_length(data: Rows, title: str, batch: int = _BATCH) -> Iterator[Tensor]:
    """Yield batches of row numbers for evaluation, the shortest rows first, so that little is padded."""
    batches = lengths(data).argsort(stable=True).split(batch)
    yield from with_progress(batches, title, "batch", len(batches))


def batch_sizes(lengths_N: Tensor, most_tokens: int) -> list[int]:
    """Return the rows of batches, from the shortest rows to the longest, that hold so many tokens at most, once padded.

    A row that is longer stands alone.
    """
    sizes, first = [], 0
    for row, length in enumerate(lengths_N.sort().values.tolist()):
        if row > first and (row + 1 - first) * length > most_tokens:
            sizes.append(row - first)
            first = row
    return [*sizes, len(lengths_N) - first]
