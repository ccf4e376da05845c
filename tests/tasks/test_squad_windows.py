from itertools import pairwise

import pytest
import torch

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.tasks.squad_windows import QuestionWindows, cut, trimmed
from tests.tasks.made_up_questions import BERT_SHAPE, LINES, SHAPE, ask, tokenizer

BEGIN, PAD, END = DEFAULT_SPECIAL_IDS.begin, DEFAULT_SPECIAL_IDS.pad, DEFAULT_SPECIAL_IDS.end
LONG = " ".join(LINES[:3])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer(tmp_path_factory.mktemp("pieces"))


def of_length(block_tokens: int) -> EncoderShape:
    return SHAPE.model_copy(update={"block_tokens": block_tokens})


def answered(data: QuestionWindows, index: int) -> str:
    """What the context says between a window's answer positions."""
    window = data.windows[index]
    passage, shift = data.passages[window.question], window.first - data.context_place(index)
    first, last = int(passage.starts_P[window.answer_start + shift]), int(passage.ends_P[window.answer_end + shift])
    return data.questions[window.question].context[first:last]


def test_a_short_pair_is_one_window_in_robertas_format(pieces: Tokenizer) -> None:
    data = cut([ask("rye and wheat", "rye", question="what in winter")], pieces, SHAPE)
    question, context = pieces.encode("what in winter"), pieces.encode("rye and wheat")
    batch = data.batch(torch.tensor([0]))
    assert batch.tokens_BT.tolist() == [[BEGIN, *question, END, END, *context, END]]
    assert batch.types_BT is None
    assert batch.visible_BT.all()
    assert data.context_place(0) == len(question) + 3


def test_bert_has_one_separator_and_two_segments(pieces: Tokenizer) -> None:
    questions = [ask("rye and wheat", "rye"), ask("rye", "rye")]
    question, context, short = pieces.encode("what"), pieces.encode("rye and wheat"), pieces.encode("rye")
    batch = cut(questions, pieces, BERT_SHAPE).batch(torch.tensor([0, 1]))
    padding = len(context) - len(short)
    assert batch.tokens_BT.tolist() == [
        [BEGIN, *question, END, *context, END],
        [BEGIN, *question, END, *short, END, *[PAD] * padding],
    ]
    opening = [0] * (len(question) + 2)
    assert batch.types_BT is not None
    assert batch.types_BT.tolist() == [
        [*opening, *[1] * (len(context) + 1)],
        [*opening, *[1] * (len(short) + 1), *[0] * padding],
    ]
    assert batch.visible_BT.sum(1).tolist() == [len(opening) + len(context) + 1, len(opening) + len(short) + 1]


@pytest.mark.parametrize("block_tokens", [8, 9, 32])
@pytest.mark.parametrize("question", ["a", "what is it that the old mill by the river grinds"])
def test_windows_cover_the_context_with_the_overlap_stated(pieces: Tokenizer, block_tokens: int, question: str) -> None:
    data = cut([ask(LONG, "wheat", question=question)], pieces, of_length(block_tokens))
    whole = pieces.encode(LONG)
    room = block_tokens - 4 - min(len(pieces.encode(question)), (block_tokens - 4) // 2)
    shared = min(block_tokens // 4, room // 2)
    assert len(data) > 1
    assert (data.windows[0].first, data.windows[-1].stop) == (0, len(whole))
    for one, other in pairwise(data.windows):
        assert one.stop - one.first == room
        assert other.first == one.stop - shared
    for index, window in enumerate(data.windows):
        batch = data.batch(torch.tensor([index]))
        assert batch.tokens_BT[0, data.context_place(index) : -1].tolist() == whole[window.first : window.stop]
        assert batch.tokens_BT.shape == (1, data.length(index))
        assert data.length(index) <= block_tokens


def test_a_question_too_long_keeps_its_beginning_and_is_counted(pieces: Tokenizer) -> None:
    long = "what is it that the old mill by the river grinds in winter"
    ids = pieces.encode(long)
    assert len(ids) > 14
    data = cut([ask("rye", "rye", question=long), ask("rye", "rye")], pieces, SHAPE)
    assert data.asked == [ids[:14], pieces.encode("what")]
    assert data.truncated == 1
    assert len(data.questions) == 2


def test_only_a_window_with_the_whole_answer_points_to_it(pieces: Tokenizer) -> None:
    answer = "im Herbst Weizen"
    data = cut([ask(LONG, answer)], pieces, SHAPE)
    inside = LONG.index(answer), LONG.index(answer) + len(answer)
    passage = data.passages[0]
    pointing = 0
    for index, window in enumerate(data.windows):
        seen = int(passage.starts_P[window.first]), int(passage.ends_P[window.stop - 1])
        if seen[0] <= inside[0] and inside[1] <= seen[1]:
            assert answered(data, index).strip() == answer
            pointing += 1
        else:
            assert (window.answer_start, window.answer_end) == (0, 0)
    assert 0 < pointing < len(data)


@pytest.mark.parametrize(
    ("context", "answer", "piece_text"),
    [
        (LINES[0], "wheat in autumn", "wheat in autumn"),
        (LINES[4], "पतझड़ में गेहूँ", "पतझड़ में गेहूँ"),
        (LINES[6], "小麦，冬天", "小麦，冬天"),
        ("die ﬁnstere Ｍühle №5", "Ｍühle", "Ｍühle"),
        ("vào mu\u0300a thu", "mu\u0300a", "mu\u0300a"),
        ("the  old\u200b mill\u200b by", "mill\u200b", "mill"),
    ],
)
def test_training_points_to_the_pieces_of_the_answer(
    pieces: Tokenizer, context: str, answer: str, piece_text: str
) -> None:
    data = cut([ask(context, answer, context[:1])], pieces, of_length(128))
    text = answered(data, 0)
    first, last = trimmed(text)
    assert piece_text in text[first:last]
    # Pieces know no boundaries of answers, so that one may reach beyond; but no piece more than needed is taken.
    window = data.windows[0]
    for place in (window.answer_start, window.answer_end):
        at = place - data.context_place(0)
        begin, end = int(data.passages[0].starts_P[at]), int(data.passages[0].ends_P[at])
        assert begin < context.index(answer) + len(answer)
        assert end > context.index(answer)


def test_a_context_of_which_the_tokenizer_makes_nothing_is_a_window_without_an_answer(pieces: Tokenizer) -> None:
    data = cut([ask("\u200b", "\u200b")], pieces, SHAPE)
    batch = data.batch(torch.tensor([0]))
    assert batch.tokens_BT.tolist() == [[BEGIN, *pieces.encode("what"), END, END, END]]
    assert (batch.starts_B.tolist(), batch.ends_B.tolist()) == ([0], [0])
