"""Extractive question answering: the head, its loss, and the official scores of SQuAD, XQuAD, MLQA and TyDiQA-GoldP.

Legend: B windows, T tokens, D width.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, init_weights
from lingraft.model.heads import token_layers
from lingraft.tasks import squad_metric
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.squad import Question
from lingraft.tasks.squad_answers import best_answers
from lingraft.tasks.squad_metric import Evaluation, Score
from lingraft.tasks.squad_windows import QuestionWindows, WindowBatch, cut
from lingraft.tasks.task_kind import TaskEvaluation, outputs_of

_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？।؟۔]|\n)", re.DOTALL)


class SpanExtractor(nn.Module):
    """An encoder's body under its family's head for SQuAD: every token's logits of being an answer's first and last."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense, self.activation, self.norm = token_layers(encoder.shape)
        self.width = 2
        self.out = nn.Linear(encoder.shape.width, self.width)
        for linear in (self.dense, self.out):
            init_weights(linear)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Return logits (B, T, 2) of start and end."""
        depth = self.encoder.shape.layers
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
        logits_BT2: Tensor = self.out(self.norm(self.activation(self.dense(hidden_BTD))))
        return logits_BT2


class QuestionAnswering:
    """The kind of task whose answer is a passage of the context; implements `TaskKind`."""

    metric = "F1"

    def __init__(self, evaluation: Evaluation = Evaluation.SQUAD) -> None:
        """Choose how answers are scored: by MLQA's definition for MLQA, by SQuAD's for SQuAD, XQuAD and TyDiQA-GoldP.

        The original papers and XTREME (Hu et al. 2020) report scores by these.
        """
        self.evaluation = evaluation

    def labels(self, examples: Sequence[Question]) -> list[str]:
        """Return no labels, as answers are passages."""
        return []

    def net(self, encoder: Encoder, labels: Sequence[str]) -> SpanExtractor:
        """Return the encoder under a new head."""
        return SpanExtractor(encoder)

    def prepare(
        self, examples: Sequence[Question], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> QuestionWindows:
        """Tokenize questions for a body of this shape."""
        return cut(examples, tokenizer, shape)

    def loss(self, net: SpanExtractor, batch: WindowBatch) -> Tensor:
        """Return the mean of the cross-entropies of start and end over all places but padding (Devlin et al. 2019).

        A window without the answer is trained to point to its first token.
        """
        logits_BT2 = outputs_of(net, batch.tokens_BT, batch.visible_BT, batch.types_BT).float()
        device = logits_BT2.device
        start_BT, end_BT = logits_BT2.masked_fill(~batch.visible_BT[..., None].to(device), -torch.inf).unbind(-1)
        starts_B, ends_B = batch.starts_B.to(device), batch.ends_B.to(device)
        return (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2

    def judge(self, net: SpanExtractor, data: QuestionWindows, language: str) -> TaskEvaluation:
        """Return F1, with exact match beside it.

        The baseline is the F1 of always answering with the whole context or with its first sentence, whichever is
        better over all questions.
        """
        self.evaluation.require(language)
        found = best_answers(net, data)
        texts = [answers[0].text if answers else "" for answers in found]
        each = self._scores(texts, data.questions, language)
        scores = squad_metric.mean(each)
        contexts = [question.context for question in data.questions]
        trivial = (contexts, [first_sentence(context) for context in contexts])
        return TaskEvaluation(
            score=scores.f1,
            baseline=max(squad_metric.mean(self._scores(texts, data.questions, language)).f1 for texts in trivial),
            tally=ItemCounts.of([score.f1 for score in each]),
            others={"exact_match": scores.exact_match},
        )

    def _scores(self, texts: Sequence[str], questions: Sequence[Question], language: str) -> list[Score]:
        return [
            squad_metric.score(text, [answer.text for answer in question.answers], self.evaluation, language)
            for text, question in zip(texts, questions, strict=True)
        ]


def first_sentence(text: str) -> str:
    """Return a text up to its first full stop, question mark, exclamation mark or line end; all of it without one."""
    found = _SENTENCE.match(text.lstrip())
    return found[0] if found else text
