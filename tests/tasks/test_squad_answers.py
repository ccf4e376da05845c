from itertools import product

import pytest
import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.tasks import squad_answers
from lingraft.tasks.squad_answers import best_answers, best_spans
from lingraft.tasks.squad_windows import QuestionWindows, cut
from tests.tasks.made_up_questions import BERT_SHAPE, LINES, SHAPE, ask, tokenizer

LONG = " ".join(LINES)
WIDE = SHAPE.model_copy(update={"block_tokens": 128})


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer(tmp_path_factory.mktemp("pieces"))


class Pointer(nn.Module):
    """Points to the gold answer of every window that has it, and a little to the first token of every input."""

    def __init__(self, data: QuestionWindows) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(9.0))
        self.places = {
            tuple(data.batch(torch.tensor([index])).tokens_BT[0].tolist()): (window.answer_start, window.answer_end)
            for index, window in enumerate(data.windows)
        }

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        logits_BT2 = torch.zeros(*tokens_BT.shape, 2)
        for row, (tokens_T, visible_T) in enumerate(zip(tokens_BT, visible_BT, strict=True)):
            start, end = self.places[tuple(tokens_T[visible_T].tolist())]
            logits_BT2[row, start, 0] = logits_BT2[row, end, 1] = self.strength
        return logits_BT2


class PieceScorer(nn.Module):
    """Logits that depend on nothing but the piece; large for special pieces, which no answer may contain."""

    def __init__(self, pieces: Tokenizer) -> None:
        super().__init__()
        self.table_V2 = nn.Parameter(torch.randn(len(pieces), 2, generator=torch.Generator().manual_seed(4)))
        self.table_V2.data[:5] = 50.0

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        return self.table_V2[tokens_BT]


def brute_force(logits_T2: Tensor, allowed: list[bool], longest: int) -> list[tuple[float, int, int]]:
    spans = [
        (float(logits_T2[start, 0] + logits_T2[end, 1]), start, end)
        for start, end in product(range(len(allowed)), repeat=2)
        if start <= end < start + longest and allowed[start] and allowed[end]
    ]
    return sorted(spans, key=lambda span: (-span[0], span[1], span[2]))


@pytest.mark.parametrize("longest", [1, 3, 30])
def test_best_spans_are_those_of_a_search_through_all(longest: int) -> None:
    generator = torch.Generator().manual_seed(longest)
    logits_BT2 = torch.randn(3, 12, 2, generator=generator)
    context_BT = torch.tensor([[2 <= place < 11 - row for place in range(12)] for row in range(3)])
    found = best_spans(logits_BT2.numpy(), context_BT.numpy(), 20, longest)
    for row in range(3):
        expected = brute_force(logits_BT2[row], context_BT[row].tolist(), longest)[:20]
        spans = [column[row][: len(expected)].tolist() for column in found]
        assert list(zip(*spans[1:], strict=True)) == [(start, end) for _, start, end in expected]
        assert spans[0] == pytest.approx([score for score, _, _ in expected])
        assert (found.scores_BN[row][len(expected) :] == -torch.inf).all()


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        (LINES[0], "wheat in autumn"),
        (LINES[4], "पतझड़ में गेहूँ"),
        (LINES[6], "小麦，冬天"),
        ("磨坊在㍿旁", "㍿"),
        ("die ﬁnstere Ｍｕ\u0308ｈｌｅ am", "ﬁnstere Ｍｕ\u0308ｈｌｅ"),
        ("in  mu\u0300a\u200b  thu\u00a0đông", "mu\u0300a\u200b  thu"),
    ],
)
def test_answers_are_the_contexts_own_characters(pieces: Tokenizer, context: str, answer: str) -> None:
    data = cut([ask(context, answer)], pieces, WIDE)
    best = best_answers(Pointer(data), data)[0][0]
    assert answer in best.text
    assert context[best.start : best.end] == best.text == best.text.strip()
    assert best.score == 18
    window, passage = data.windows[0], data.passages[0]
    shift = window.first - data.context_place(0)
    assert best.end == int(passage.ends_P[window.answer_end + shift])


@pytest.mark.parametrize("shape", [SHAPE, BERT_SHAPE])
def test_the_best_over_windows_are_the_best_of_the_whole_context(
    pieces: Tokenizer, shape: EncoderShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = cut([ask(LONG, "wheat")], pieces, shape)
    assert len(data) > 4
    # No span is longer than what neighbours share, so that every one lies whole in some window.
    longest = SHAPE.block_tokens // 4
    monkeypatch.setattr(squad_answers, "LONGEST_TOKENS", longest)
    net, spans = PieceScorer(pieces), pieces.encode_spans(LONG)
    expected: dict[tuple[int, int], float] = {}
    for score, start, end in brute_force(
        net.table_V2.detach()[torch.tensor(spans.ids)], [True] * len(spans.ids), longest
    ):
        text = LONG[spans.starts[start] : spans.ends[end]]
        if text.strip():
            begin = spans.starts[start] + len(text) - len(text.lstrip())
            expected.setdefault((begin, begin + len(text.strip())), score)
    found = best_answers(net, data)[0]
    assert [(answer.start, answer.end) for answer in found] == list(expected)[:20]
    assert [answer.score for answer in found] == pytest.approx(list(expected.values())[:20])
    assert len({(answer.start, answer.end) for answer in found}) == 20
