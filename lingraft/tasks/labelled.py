"""Classification of labelled documents: batches, RoBERTa's head, accuracy and confusion.

Legend: B documents, T tokens, D width, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lingraft.documents import Document
from lingraft.encoder import INITIAL_STD, Encoder
from lingraft.errors import TextError
from lingraft.progress import counted
from lingraft.tokenizer import BEGIN, END, PAD, Tokenizer

_EVALUATION_BATCH = 64


class Classifier(nn.Module):
    """An encoder's body under RoBERTa's classification head: first token, dense, tanh, projection."""

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        width = encoder.shape.width
        self.encoder = encoder
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=INITIAL_STD)
            nn.init.zeros_(linear.bias)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor) -> Tensor:
        """Logits (B, C)."""
        depth = self.encoder.shape.layers
        first_BD = self.encoder.hidden_states(tokens_BT, (depth,), visible_BT)[depth][:, 0]
        logits_BC: Tensor = self.out(torch.tanh(self.dense(first_BD)))
        return logits_BC


class LabelledBatch(NamedTuple):
    """Padded documents and their classes."""

    tokens_BT: Tensor
    visible_BT: Tensor
    labels_B: Tensor


@dataclass(frozen=True)
class Labelled:
    """Tokenized documents with class numbers."""

    tokens: list[list[int]]
    labels_N: Tensor
    truncated: int
    """Documents of which only the beginning fits a block."""

    def __len__(self) -> int:
        return len(self.tokens)


def label_names(documents: Sequence[Document]) -> list[str]:
    """All labels of a training set, sorted: the classes of the task.

    Raises:
        TextError: fewer than two classes.
    """
    names = sorted({document.label for document in documents if document.label is not None})
    if len(names) < 2:
        raise TextError(
            f"a task needs two or more labels to tell apart; the training documents have {names}. Label more."
        )
    return names


def prepare(documents: Sequence[Document], names: Sequence[str], tokenizer: Tokenizer, block_tokens: int) -> Labelled:
    """Tokenize documents as <s> text </s>; what is longer than a block keeps its beginning, and is counted.

    Raises:
        TextError: a document's label is not one of the task's.
    """
    numbers = {name: index for index, name in enumerate(names)}
    for document in documents:
        if document.label not in numbers:
            raise TextError(
                f"document {document.name!r} has label {document.label!r}; the task knows {list(names)}. "
                "Correct the label, or finetune with documents that have it."
            )
    encoded = encode([document.text for document in documents], tokenizer, block_tokens)
    return Labelled(
        tokens=encoded.rows,
        labels_N=torch.tensor([numbers[str(document.label)] for document in documents]),
        truncated=sum(tokens > block_tokens for tokens in encoded.whole_tokens),
    )


class Encoded(NamedTuple):
    """Texts as a classifier reads them."""

    rows: list[list[int]]
    """<s> text </s>, cut to a block."""
    whole_tokens: list[int]
    """Tokens that each text has uncut, <s> and </s> included."""


def encode(texts: list[str], tokenizer: Tokenizer, block_tokens: int) -> Encoded:
    """Tokenize texts as <s> text </s>; what is longer than a block keeps its beginning."""
    ids = tokenizer.encode_all(texts)
    return Encoded([[BEGIN, *row[: block_tokens - 2], END] for row in ids], [len(row) + 2 for row in ids])


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids (B, T) padded to the longest row, and True (B, T) where a token stands."""
    length = max(len(row) for row in rows)
    tokens_BT = torch.tensor([[*row, *[PAD] * (length - len(row))] for row in rows])
    return tokens_BT, tokens_BT != PAD


def batches(data: Labelled, batch_documents: int, generator: torch.Generator) -> Iterator[LabelledBatch]:
    """Endless shuffled batches; each epoch a new order. An epoch's last batch may be smaller."""
    while True:
        for chosen in torch.randperm(len(data), generator=generator).split(batch_documents):
            yield _batch(data, chosen)


def _batch(data: Labelled, chosen: Tensor) -> LabelledBatch:
    return LabelledBatch(*pad([data.tokens[index] for index in chosen.tolist()]), data.labels_N[chosen])


@torch.inference_mode()
def confusion(classifier: Classifier, data: Labelled) -> Tensor:
    """Counts (C true, C predicted) over a set of documents."""
    classifier.eval()
    device = classifier.out.weight.device
    classes = classifier.out.out_features
    counts_CC = torch.zeros(classes, classes, dtype=torch.long)
    by_length = torch.tensor([len(row) for row in data.tokens]).argsort(stable=True)
    batches = by_length.split(_EVALUATION_BATCH)
    for chosen in counted(batches, "judge documents", "batch", len(batches)):
        batch = _batch(data, chosen)
        predicted_B = classifier(batch.tokens_BT.to(device), batch.visible_BT.to(device)).argmax(-1).cpu()
        cells = torch.bincount(batch.labels_B * classes + predicted_B, minlength=classes * classes)
        counts_CC += cells.view(classes, classes)
    return counts_CC


def accuracy(counts_CC: Tensor) -> float:
    """Share of documents whose class was found."""
    return float(counts_CC.diagonal().sum() / counts_CC.sum())


def majority_share(counts_CC: Tensor) -> float:
    """Accuracy of always naming the class that is most frequent in the set itself."""
    return float(counts_CC.sum(1).max() / counts_CC.sum())
