import pytest
import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder
from lingraft.tasks.question_answering import QuestionAnswering, SpanExtractor, first_sentence
from tests.tasks.little import drawn
from tests.tasks.made_up_questions import BERT_SHAPE, LINES, SHAPE, ask, tokenizer

QA = QuestionAnswering()
QUESTIONS = [
    ask(LINES[0], "wheat", question="in autumn"),
    ask(LINES[0], "rye", question="in winter"),
    ask(LINES[1], "Weizen", question="im Herbst"),
    ask(LINES[1], "Roggen", question="im Winter"),
    ask(LINES[6], "小麦", question="秋天老磨坊"),
    ask(LINES[6], "黑麦", question="冬天"),
    ask(LINES[7], "ข้าวสาลี", question="ฤดูใบไม้ร่วง"),
    ask(LINES[7], "ข้าวไรย์", question="ฤดูหนาว"),
]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer(tmp_path_factory.mktemp("pieces"))


def extractor(pieces: Tokenizer, shape: EncoderShape = SHAPE) -> SpanExtractor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return QA.net(Encoder(shape, len(pieces)), [])


class Fixed(nn.Module):
    """The same logits for every input, whatever it says."""

    def __init__(self, logits_T2: Tensor) -> None:
        super().__init__()
        self.encoder = Encoder(SHAPE, 4)
        self.logits_T2 = logits_T2

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        return self.logits_T2[: tokens_BT.shape[1]].expand(len(tokens_BT), -1, -1)


@pytest.mark.parametrize("shape", [SHAPE, BERT_SHAPE])
@torch.no_grad()
def test_logits_do_not_depend_on_padding(pieces: Tokenizer, shape: EncoderShape) -> None:
    net = extractor(pieces, shape).eval()
    data = QA.prepare([ask("rye", "rye"), *QUESTIONS], [], pieces, shape)
    together = data.batch(torch.arange(len(data)))
    logits_BT2 = net(together.tokens_BT, together.visible_BT, together.types_BT)
    for index in range(len(data)):
        alone = data.batch(torch.tensor([index]))
        expected_1T2 = net(alone.tokens_BT, alone.visible_BT, alone.types_BT)
        assert expected_1T2.shape == (1, data.length(index), 2)
        torch.testing.assert_close(logits_BT2[index, : data.length(index)], expected_1T2[0], rtol=0, atol=1e-5)


def test_a_tiny_model_learns_its_questions_by_heart(pieces: Tokenizer) -> None:
    shape = SHAPE.model_copy(update={"block_tokens": 64})
    net = extractor(pieces, shape)
    data = QA.prepare(QUESTIONS, [], pieces, shape)
    before = QA.judge(net, data, "en")
    net.train()
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    for batch in drawn(data, 8, 50):
        loss = QA.loss(net, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    learned = QA.judge(net, data, "en")
    assert learned.score > max(0.9, learned.baseline, before.score + 0.3)
    assert learned.others["exact_match"] > 0.8
    assert not net.training


def test_judging_scores_answers_and_the_better_trivial_one(pieces: Tokenizer) -> None:
    questions = [ask("the old mill. in winter", "old mill"), ask("the rye. wheat and oats", "wheat and oats", "oats")]
    data = QA.prepare(questions, [], pieces, SHAPE.model_copy(update={"block_tokens": 64}))
    assert data.context_place(0) == data.context_place(1)
    assert all(int(passage.ends_P[0]) <= len("the") for passage in data.passages)
    logits_T2 = torch.zeros(64, 2)
    logits_T2[data.context_place(0)] = 9.0
    judged = QA.judge(Fixed(logits_T2), data, "en")  # type: ignore[arg-type]
    assert (judged.score, judged.others) == (0.0, {"exact_match": 0.0})
    # First sentences: "old mill" F1 1, "rye" 0. Whole contexts: P 2/4, R 1, F1 2/3; and P 3/4, R 1, F1 6/7.
    assert judged.baseline == pytest.approx((2 / 3 + 6 / 7) / 2)
    data = QA.prepare(questions[:1], [], pieces, SHAPE)
    assert QA.judge(Fixed(logits_T2), data, "en").baseline == 1.0  # type: ignore[arg-type]
    assert judged.confusion_CC is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("In 3.5 days. Then", "In 3.5 days."),
        ("河边。老磨坊", "河边。"),
        ("नदी। चक्की", "नदी।"),
        ("لماذا؟ لا", "لماذا؟"),
        ("  เก่า\nใหม่", "เก่า\n"),
        ("no end.", "no end."),
    ],
)
def test_a_first_sentence_ends_where_its_script_ends_sentences(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence
