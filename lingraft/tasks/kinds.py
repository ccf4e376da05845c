"""What every kind of task provides, so that finetuning, judging and export treat all tasks alike.

Three kinds: `classification` (one text or a pair), `question_answering` (extractive) and `tagging` (named entities).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder
from lingraft.tasks.item_counts import ItemCounts


@dataclass(frozen=True)
class TaskEvaluation:
    """What a finetuned model scored on a set of examples; all scores are shares, 0 to 1."""

    score: float
    """The task's official metric."""
    baseline: float
    """What the best trivial answer scores on the same examples, for example the most frequent class."""
    tally: ItemCounts
    """What the score is made of, example by example, in the order of the examples."""
    others: dict[str, float] = field(default_factory=dict)
    """Further official metrics, such as exact match."""
    confusion_CC: Tensor | None = None
    """Counts (C true, C predicted), where there are classes."""


class TaskNet(Protocol):
    """An `nn.Module` of an encoder's body and the task's head; parameters outside `encoder.` are the head."""

    encoder: Encoder

    def __call__(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor: ...


class Prepared(Protocol):
    """Tokenized examples."""

    @property
    def truncated(self) -> int:
        """Examples of which only a part is seen."""

    def __len__(self) -> int:
        """Rows that training draws from: examples, or windows where an example needs several."""

    def batch(self, chosen: Tensor) -> Any:
        """The rows of the numbers given, padded alike: a record of tensors."""

    def length(self, row: int) -> int:
        """Tokens of a row, without padding."""

    def targets(self, chosen: Tensor) -> int:
        """What the loss of these rows is the mean of: so much they weigh in a larger batch."""


class TaskKind(Protocol):
    """Loading, batches, head and official metric of one kind of task."""

    metric: str
    """Name of the official metric: 'accuracy' or 'F1'."""

    def read(self, path: Path, language: str) -> list[Any]:
        """Examples of a language from a file in one of the standard formats."""

    def from_rows(self, rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str]) -> list[Any]:
        """Examples from a Hugging Face dataset's rows.

        Args:
            rows: the dataset's rows.
            origin: what to call the dataset in errors.
            names: names of its class numbers (`ClassLabel.names`); empty where it stores the names themselves.
        """

    def labels(self, examples: Sequence[Any]) -> list[str]:
        """Labels of a training set, sorted; empty for question answering."""

    def net(self, encoder: Encoder, labels: Sequence[str]) -> nn.Module:
        """The encoder under a new head (a `TaskNet`); draws the head's weights from torch's global generator."""

    def prepare(
        self, examples: Sequence[Any], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Prepared:
        """Tokenize examples for a body of this shape; a label that is not among `labels` is an error."""

    def loss(self, net: Any, batch: Any) -> Tensor:
        """The loss of a batch, a scalar, on the device of the net's head."""

    def judge(self, net: Any, data: Any, language: str) -> TaskEvaluation:
        """Score a model by the official metric; the net is put into evaluation mode."""
