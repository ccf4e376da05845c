"""Extractive question answering: the head, its loss, and the official scores of SQuAD, XQuAD, MLQA and TyDiQA-GoldP.

Legend: B windows, T tokens, D width.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, init_weights
from lingraft.tasks import squad, squad_metric
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.kinds import TaskEvaluation
from lingraft.tasks.squad import Question
from lingraft.tasks.squad_answers import LONGEST_TOKENS, N_BEST, best_answers
from lingraft.tasks.squad_metric import Evaluation, Score
from lingraft.tasks.squad_windows import WindowBatch, Windows, cut

_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？।؟۔]|\n)", re.DOTALL)


class SpanExtractor(nn.Module):
    """An encoder's body under BERT's head for SQuAD: every token's logits of being an answer's first and last."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.out = nn.Linear(encoder.shape.width, 2)
        init_weights(self.out)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Logits (B, T, 2) of start and end."""
        depth = self.encoder.shape.layers
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
        logits_BT2: Tensor = self.out(hidden_BTD)
        return logits_BT2


class QuestionAnswering:
    """The kind of task whose answer is a passage of the context; implements `TaskKind`."""

    metric = "F1"

    def __init__(self, evaluation: Evaluation = Evaluation.SQUAD, longest_tokens: int = LONGEST_TOKENS) -> None:
        """Choose how answers are judged.

        Args:
            evaluation: SQUAD for SQuAD, XQuAD and TyDiQA-GoldP in every language; MLQA for MLQA. What the original
                papers and XTREME (Hu et al. 2020) report is by these.
            longest_tokens: longest answer that is given.
        """
        self.evaluation, self.longest_tokens = evaluation, longest_tokens

    def read(self, path: Path, language: str) -> list[Question]:
        """Questions of a file in SQuAD's JSON format.

        Raises:
            TextError: the file is not in this format, or an answer does not stand where its offset says.
            RecipeError: the evaluation is not defined for the language.
        """
        self.evaluation.require(language)
        return squad.read(path)

    def from_rows(self, rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str]) -> list[Question]:
        """Questions of a Hugging Face dataset's rows; there are no class names.

        Raises:
            TextError: a column is missing or wrong, or an answer does not stand where its offset says.
        """
        return squad.from_rows(rows, origin)

    def labels(self, examples: Sequence[Question]) -> list[str]:
        """None: answers are passages."""
        return []

    def net(self, encoder: Encoder, labels: Sequence[str]) -> SpanExtractor:
        """The encoder under a new head; draws the head's weights from torch's global generator."""
        return SpanExtractor(encoder)

    def prepare(
        self, examples: Sequence[Question], labels: Sequence[str], tokenizer: Tokenizer, shape: EncoderShape
    ) -> Windows:
        """Tokenize questions for a body of this shape.

        Raises:
            TextError: there are no questions.
        """
        return cut(examples, tokenizer, shape)

    def loss(self, net: SpanExtractor, batch: WindowBatch) -> Tensor:
        """Mean of the cross-entropies of start and end over all places but padding (Devlin et al. 2019).

        A window without the answer is taught to point to its first token.
        """
        device = net.out.weight.device
        visible_BT = batch.visible_BT.to(device)
        types_BT = None if batch.types_BT is None else batch.types_BT.to(device)
        logits_BT2 = net(batch.tokens_BT.to(device), visible_BT, types_BT).float()
        start_BT, end_BT = logits_BT2.masked_fill(~visible_BT[..., None], -torch.inf).unbind(-1)
        starts_B, ends_B = batch.starts_B.to(device), batch.ends_B.to(device)
        return (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2

    def judge(self, net: SpanExtractor, data: Windows, language: str) -> TaskEvaluation:
        """F1, with exact match beside it; the net is put into evaluation mode.

        The baseline is the F1 of always answering with the whole context or with its first sentence, whichever is
        better over all questions.

        Raises:
            RecipeError: the evaluation is not defined for the language.
        """
        self.evaluation.require(language)
        found = best_answers(net, data, N_BEST, self.longest_tokens)
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
    """A text up to its first full stop, question mark, exclamation mark or line end; all of it where there is none."""
    found = _SENTENCE.match(text.lstrip())
    return found[0] if found else text
