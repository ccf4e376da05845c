"""Classification of one text or a pair of texts (XNLI, PAWS-X, labelled documents): the family's head, accuracy.

Legend: B batch, T tokens, D width, C classes, N examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, init_weights
from lingraft.model.heads import classifier_layers, mean_of_tokens
from lingraft.tasks.class_scores import MACRO_F1, macro_f1
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.labelled_texts import Example
from lingraft.tasks.pairs import Encoded, encode, pad, pad_types
from lingraft.tasks.task_kind import TaskEvaluation, by_length, labels_of, number_labels, outputs_of


class Classifier(nn.Module):
    """An encoder's body under its family's head for texts, which reads the first token's state or the mean of all.

    All are the visible ones, special ones included, as in transformers' ModernBERT.
    """

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense, self.activation, self.norm = classifier_layers(encoder.shape)
        self.width = classes
        self.out = nn.Linear(encoder.shape.width, classes)
        for linear in (self.dense, self.out):
            init_weights(linear)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Return logits (B, C)."""
        depth = self.encoder.shape.layers
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
        pooled_BD = mean_of_tokens(hidden_BTD, visible_BT) if self.encoder.shape.pools_mean else hidden_BTD[:, 0]
        features_BD = self.norm(self.activation(self.dense(self._drop(pooled_BD))))
        logits_BC: Tensor = self.out(self._drop(features_BD))
        return logits_BC

    def _drop(self, features_BD: Tensor) -> Tensor:
        return F.dropout(features_BD, self.encoder.shape.dropout, self.training)


class TextBatch(NamedTuple):
    """Padded texts or pairs, and their classes."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    labels_B: Tensor


@dataclass(frozen=True)
class Classified:
    """Tokenized texts or pairs with class numbers; implements `Prepared`."""

    encoded: Encoded
    labels_N: Tensor
    pad_id: int

    @property
    def truncated(self) -> int:
        """Number of examples of which only a part fits a block."""
        return self.encoded.truncated

    def __len__(self) -> int:
        return len(self.labels_N)

    def batch(self, chosen: Tensor) -> TextBatch:
        """Return examples by their numbers."""
        rows = chosen.tolist()
        tokens_BT, visible_BT = pad([self.encoded.rows[row] for row in rows], self.pad_id)
        types = self.encoded.types
        types_BT = pad_types(None if types is None else [types[row] for row in rows])
        return TextBatch(tokens_BT, visible_BT, types_BT, self.labels_N[chosen])

    def length(self, row: int) -> int:
        """Return the tokens of an example."""
        return len(self.encoded.rows[row])

    def targets(self, chosen: Tensor) -> int:
        """Return the number of examples, as each has one class."""
        return len(chosen)


class Classification:
    """The kind of task that sorts texts, or pairs of texts, into two or more classes; implements `TaskKind`."""

    metric = "accuracy"

    def labels(self, examples: Sequence[Example]) -> list[str]:
        """Return the classes of a training set; see `TaskKind`."""
        return labels_of((example.label for example in examples), "label")

    def net(self, encoder: Encoder, labels: Sequence[str]) -> Classifier:
        """Return the encoder under a new head."""
        return Classifier(encoder, len(labels))

    def prepare(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Classified:
        """Tokenize examples; one longer than a block loses its end (the longer text of a pair), and is counted."""
        numbers = number_labels(labels, ((example.place, example.label) for example in examples), "label")
        encoded = encode([example.texts for example in examples], tokenizer, shape)
        labels_N = torch.tensor([numbers[example.label] for example in examples])
        return Classified(encoded, labels_N, tokenizer.special.pad)

    def loss(self, net: Classifier, batch: TextBatch) -> Tensor:
        """Return the mean cross-entropy over a batch, a scalar."""
        logits_BC = outputs_of(net, batch.tokens_BT, batch.visible_BT, batch.types_BT).float()
        return F.cross_entropy(logits_BC, batch.labels_B.to(logits_BC.device))

    def judge(self, net: Classifier, data: Classified, language: str) -> TaskEvaluation:
        """Return accuracy and macro-F1, beside the accuracy of always naming the most frequent class of the set."""
        predicted_N, classes = predicted(net, data), net.width
        counts_CC = confusion(data.labels_N, predicted_N, classes)
        tally = ItemCounts.of((predicted_N == data.labels_N).numpy())
        return TaskEvaluation(
            score=tally.score,
            baseline=float(counts_CC.sum(1).max() / counts_CC.sum()),
            tally=tally,
            others={MACRO_F1: macro_f1(counts_CC.tolist())},
            confusion_CC=counts_CC,
        )


@torch.inference_mode()
def predicted(net: Classifier, data: Classified) -> Tensor:
    """Return the most probable class of each example (N); the net is put into evaluation mode."""
    net.eval()
    predicted_N = torch.empty(len(data), dtype=torch.long)
    for chosen in by_length(data, "judge examples"):
        batch = data.batch(chosen)
        predicted_N[chosen] = outputs_of(net, batch.tokens_BT, batch.visible_BT, batch.types_BT).argmax(-1).cpu()
    return predicted_N


def confusion(labels_N: Tensor, predicted_N: Tensor, classes: int) -> Tensor:
    """Return counts (C true, C predicted) over a set of examples."""
    cells = torch.bincount(labels_N * classes + predicted_N, minlength=classes * classes)
    return cells.view(classes, classes)
