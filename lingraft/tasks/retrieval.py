"""Retrieval of passages by vectors: pooling and layers above the body, contrastive loss, accuracy@1, MRR and nDCG.

Legend: B batch, T tokens, D width of the body, E width of a vector, N examples, P passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import DenseLayer, Retrieval
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TextError
from lingraft.model.encoder import Encoder, init_weights
from lingraft.model.heads import pool
from lingraft.tasks.pairs import Encoded, encode, pad, pad_types
from lingraft.tasks.query_passages import QueryPassage
from lingraft.tasks.ranking import Answers, evaluate_vectors, require_finite
from lingraft.tasks.task_kind import TaskEvaluation, by_length, outputs_of

_SCALE = 20.0
"""Factor of cosines before the softmax of the loss, as sentence-transformers has it."""
_ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "identity": nn.Identity}


class Normalise(nn.Module):
    """Division of vectors (B, E) by their Euclidean length."""

    def forward(self, vectors_BE: Tensor) -> Tensor:
        """Return vectors (B, E) of length 1."""
        return F.normalize(vectors_BE, dim=-1)


class TextEmbedder(nn.Module):
    """An encoder's body under pooling and the layers that turn what is pooled into a text's vector."""

    def __init__(self, encoder: Encoder, settings: Retrieval) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        self.layers = nn.Sequential()
        self.width = encoder.shape.width
        for layer in settings.layers:
            if isinstance(layer, DenseLayer):
                dense = nn.Linear(self.width, layer.width, bias=layer.bias)
                init_weights(dense)
                self.layers.append(nn.Sequential(dense, _ACTIVATIONS[layer.activation]()))
                self.width = layer.width
            else:
                self.layers.append(Normalise())

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Return vectors (B, E); padding stands behind the tokens."""
        depth = self.encoder.shape.layers
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
        vectors_BE: Tensor = self.layers(pool(hidden_BTD, visible_BT, self.settings.pooling))
        return vectors_BE


class PaddedTexts(NamedTuple):
    """Padded texts."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None


class RetrievalBatch(NamedTuple):
    """Queries and the distinct passages that answer them."""

    queries: PaddedTexts
    passages: PaddedTexts
    answers_B: Tensor
    """Number of the passage, among those of the batch, that answers each query."""


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokenized texts to be embedded; implements `Rows`."""

    encoded: Encoded
    pad_id: int

    @classmethod
    def of(cls, texts: Sequence[str], prefix: str, tokenizer: Tokenizer, shape: EncoderShape) -> Self:
        """Tokenize texts behind a prefix; what exceeds a block is cut off."""
        return cls(encode([(prefix + text,) for text in texts], tokenizer, shape), tokenizer.special.pad)

    def __len__(self) -> int:
        return len(self.encoded.rows)

    def batch(self, chosen: Tensor) -> PaddedTexts:
        """Return texts by their numbers."""
        rows = chosen.tolist()
        types = self.encoded.types
        types_BT = pad_types(None if types is None else [types[row] for row in rows])
        return PaddedTexts(*pad([self.encoded.rows[row] for row in rows], self.pad_id), types_BT)

    def length(self, row: int) -> int:
        """Return the tokens of a text."""
        return len(self.encoded.rows[row])

    def is_cut(self, row: int) -> bool:
        """Whether only a part of a text fits a block."""
        return self.encoded.whole_tokens[row] > self.length(row)


@dataclass(frozen=True)
class QueriesAndPassages:
    """Tokenized queries (N) and distinct passages (P); implements `Prepared`."""

    queries: TokenizedTexts
    passages: TokenizedTexts
    answers_N: Tensor
    """Number of the passage that answers each query, from 0 to P - 1."""

    @property
    def truncated(self) -> int:
        """Number of examples of which only a part fits a block."""
        answers = enumerate(self.answers_N.tolist())
        return sum(self.queries.is_cut(query) or self.passages.is_cut(passage) for query, passage in answers)

    def __len__(self) -> int:
        return len(self.queries)

    def batch(self, chosen: Tensor) -> RetrievalBatch:
        """Return examples by their numbers."""
        passages_P, answers_B = self.answers_N[chosen].unique(return_inverse=True)
        return RetrievalBatch(self.queries.batch(chosen), self.passages.batch(passages_P), answers_B)

    def length(self, row: int) -> int:
        """Return the tokens of the longer of query and passage."""
        return max(self.queries.length(row), self.passages.length(int(self.answers_N[row])))

    def targets(self, chosen: Tensor) -> int:
        """Return the number of queries, as each has one passage to be told from the others."""
        return len(chosen)


class PassageRetrieval:
    """The kind of task that finds the passage for a query by the cosine of their vectors; implements `TaskKind`."""

    metric = "accuracy_at_1"

    def __init__(self, settings: Retrieval) -> None:
        """Choose pooling, layers and prefixes."""
        self.settings = settings

    def labels(self, examples: Sequence[QueryPassage]) -> list[str]:
        """Return no labels, as answers are passages."""
        return []

    def net(self, encoder: Encoder, labels: Sequence[str]) -> TextEmbedder:
        """Return the encoder under pooling and layers."""
        return TextEmbedder(encoder, self.settings)

    def prepare(
        self, examples: Sequence[QueryPassage], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> QueriesAndPassages:
        """Tokenize queries and passages behind their prefixes; equal passages are one."""
        numbers = {text: number for number, text in enumerate(dict.fromkeys(each.passage for each in examples))}
        if len(numbers) < 2:
            raise TextError(
                f"{len(examples)} queries have {len(numbers)} passage to choose from. Add examples with others."
            )
        queries = [example.query for example in examples]
        return QueriesAndPassages(
            queries=TokenizedTexts.of(queries, self.settings.query_prefix, tokenizer, shape),
            passages=TokenizedTexts.of([*numbers], self.settings.passage_prefix, tokenizer, shape),
            answers_N=torch.tensor([numbers[example.passage] for example in examples]),
        )

    def loss(self, net: TextEmbedder, batch: RetrievalBatch) -> Tensor:
        """Return the mean cross-entropy of finding each query's passage among those of the batch, a scalar.

        Cosines times 20 are the logits (van den Oord et al. 2018; sentence-transformers' MultipleNegativesRankingLoss).
        """
        queries_BE, passages_PE = (outputs_of(net, *texts).float() for texts in (batch.queries, batch.passages))
        logits_BP = _SCALE * F.normalize(queries_BE) @ F.normalize(passages_PE).T
        return F.cross_entropy(logits_BP, batch.answers_B.to(logits_BP.device))

    def judge(self, net: TextEmbedder, data: QueriesAndPassages, language: str) -> TaskEvaluation:
        """Return accuracy@1, MRR@10 and nDCG@10, beside the accuracy of always giving the most frequent answer."""
        answers = Answers.of([{passage: 1.0} for passage in data.answers_N.tolist()])
        return evaluate_vectors(embed(net, data.queries), embed(net, data.passages), answers)


@torch.inference_mode()
def embed(net: TextEmbedder, texts: TokenizedTexts) -> Tensor:
    """Return the vectors (N, E) of texts, in float32 on the CPU; the net is put into evaluation mode."""
    net.eval()
    vectors_NE = torch.empty(len(texts), net.width)
    for chosen in by_length(texts, "embed texts"):
        vectors_NE[chosen] = outputs_of(net, *texts.batch(chosen)).float().cpu()
    require_finite(vectors_NE)
    return vectors_NE
