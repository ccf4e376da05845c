from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers, trainers

from lingraft.data.masking import NOT_PREDICTED
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TextError
from lingraft.tasks.tagged_sentences import Sentence
from lingraft.tasks.tagging import Tagger, Tagging, predicted_tags
from tests.tasks.little import BERT, encoder, lines, shape

TASK = Tagging()
LABELS = ["B-LOC", "B-PER", "I-PER", "O"]


def sentence(words: str, tags: str) -> Sentence:
    return Sentence("row 0", tuple(words.split(" ")), tuple(tags.split(" ")))


def constant(tag: str) -> Tagger:
    """A net that gives every token the same tag."""
    net = TASK.net(encoder(shape()), LABELS)
    with torch.no_grad():
        net.out.weight.zero_()
        net.out.bias[LABELS.index(tag)] = 1.0
    return net


def test_the_first_piece_of_each_word_carries_its_tag(pieces: Tokenizer) -> None:
    words = ["bade", "kilomu", "na"]
    ids = [pieces.encode(word) for word in words]
    assert max(map(len, ids)) > 1
    data = TASK.prepare([sentence(" ".join(words), "B-PER I-PER O")], LABELS, pieces, shape())
    assert data.tokens == [[DEFAULT_SPECIAL_IDS.begin, *ids[0], *ids[1], *ids[2], DEFAULT_SPECIAL_IDS.end]]
    further = [[NOT_PREDICTED] * (len(some) - 1) for some in ids]
    assert data.labels == [[NOT_PREDICTED, 1, *further[0], 2, *further[1], 3, *further[2], NOT_PREDICTED]]
    assert (len(data), data.truncated) == (1, 0)


def test_a_word_of_which_the_tokenizer_leaves_nothing_is_an_unknown_piece(pieces: Tokenizer) -> None:
    nothing = "\N{ZERO WIDTH SPACE}"
    assert pieces.encode(nothing) == []
    data = TASK.prepare([sentence(nothing, "O")], LABELS, pieces, shape())
    assert data.tokens == [[DEFAULT_SPECIAL_IDS.begin, DEFAULT_SPECIAL_IDS.unknown, DEFAULT_SPECIAL_IDS.end]]
    assert data.labels == [[NOT_PREDICTED, 3, NOT_PREDICTED]]


def test_byte_pieces_of_words_are_those_inside_a_sentence(tmp_path: Path) -> None:
    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.train_from_iterator(lines(), trainers.BpeTrainer(vocab_size=200, special_tokens=["<s>", "<pad>", "</s>"]))
    fast.save(str(tmp_path / "tokenizer.json"))
    pieces = Tokenizer.from_file(tmp_path / "tokenizer.json", "en")
    data = TASK.prepare([sentence("ba de", "O O")], LABELS, pieces, shape())
    assert data.tokens[0][1:-1] == pieces.encode(" ba de")
    assert data.tokens[0][1:-1] != pieces.encode("ba") + pieces.encode("de")


def test_words_that_do_not_fit_a_block_are_judged_as_outside_and_their_sentence_counted(pieces: Tokenizer) -> None:
    long = sentence("ba " * 40 + "ba", "B-LOC " * 40 + "B-LOC")
    data = TASK.prepare([long, sentence("ba", "B-LOC")], LABELS, pieces, shape(block_tokens=12))
    assert [len(row) for row in data.tokens] == [12, len(pieces.encode("ba")) + 2]
    assert data.truncated == 1
    seen = sum(label != NOT_PREDICTED for label in data.labels[0])
    assert predicted_tags(constant("B-LOC"), data) == [["B-LOC"] * seen + ["O"] * (41 - seen), ["B-LOC"]]
    assert 0 < seen < 41


def test_parts_of_speech_are_judged_by_the_words_that_are_right(pieces: Tokenizer) -> None:
    task, tags = Tagging(judges_words=True), LABELS
    long = sentence("ba " * 40 + "ba", "B-LOC " * 40 + "B-LOC")
    data = task.prepare([long, sentence("ba de", "B-LOC O")], tags, pieces, shape(block_tokens=12))
    judged = task.judge(constant("B-LOC"), data, "de")
    seen = sum(label != NOT_PREDICTED for label in data.labels[0])
    assert (task.metric, judged.score) == ("accuracy", pytest.approx((seen + 1) / 43))
    assert judged.baseline == pytest.approx(42 / 43)
    assert judged.tally.found_N.tolist() == [seen, 1]
    assert judged.tally.out_of_N.tolist() == [41, 2]


def test_a_tag_that_the_task_does_not_know_is_refused_with_those_it_does(pieces: Tokenizer) -> None:
    with pytest.raises(
        TextError, match=r"row 0: a word has tag 'B-ORG'; the task knows \['B-LOC', .*Correct the tag, or"
    ):
        TASK.prepare([sentence("a b", "O B-ORG")], LABELS, pieces, shape())


@torch.no_grad()
def test_the_loss_is_the_mean_over_words(pieces: Tokenizer) -> None:
    sentences = [sentence("bade kilomu na", "B-PER I-PER O"), sentence("ba", "B-LOC")]
    data = TASK.prepare(sentences, LABELS, pieces, shape())
    net, batch = TASK.net(encoder(shape()), LABELS), data.batch(torch.arange(2))
    logs_BTC = torch.log_softmax(net(batch.tokens_BT, batch.visible_BT), -1)
    logs = [
        logs_BTC[row, place, label]
        for row, place in batch.labels_BT.ne(NOT_PREDICTED).nonzero().tolist()
        for label in [int(batch.labels_BT[row, place])]
    ]
    assert len(logs) == 4
    torch.testing.assert_close(TASK.loss(net, batch), -torch.stack(logs).mean())


def test_a_batch_without_words_has_no_loss(pieces: Tokenizer) -> None:
    data = TASK.prepare([Sentence("row 0", (), ())], LABELS, pieces, shape())
    assert TASK.loss(constant("O"), data.batch(torch.tensor([0]))).item() == 0.0
    assert predicted_tags(constant("O"), data) == [[]]


@pytest.mark.parametrize(
    ("tag", "f1", "precision", "recall"),
    [
        # Three entities of four words in all. A constant B-LOC claims four, one rightly.
        ("B-LOC", 2 / 7, 1 / 4, 1 / 3),
        # I-PER makes one entity of each sentence; that of the last one is right.
        ("I-PER", 2 / 5, 1 / 2, 1 / 3),
        ("O", 0.0, 0.0, 0.0),
    ],
)
def test_span_f1_by_hand_in_three_scripts(
    pieces: Tokenizer, tag: str, f1: float, precision: float, recall: float
) -> None:
    sentences = [sentence("Ὅμηρος 東京", "B-PER B-LOC"), sentence("अनुल शर्मा", "B-PER I-PER")]
    data = TASK.prepare(sentences, LABELS, pieces, shape())
    judged = TASK.judge(constant(tag), data, "el")
    assert judged.score == pytest.approx(f1) == judged.tally.score
    assert judged.others == pytest.approx({"precision": precision, "recall": recall})
    assert judged.baseline == pytest.approx(2 / 5)


@torch.no_grad()
def test_a_sentences_tags_do_not_depend_on_its_neighbours(pieces: Tokenizer) -> None:
    words = " ".join(lines()).split(" ")
    sentences = [sentence(" ".join(words[at : at + 1 + at % 4]), " ".join(["O"] * (1 + at % 4))) for at in range(150)]
    net = TASK.net(encoder(shape(BERT, 64)), LABELS)
    torch.nn.init.normal_(net.out.weight, generator=torch.Generator().manual_seed(3))
    together = predicted_tags(net, TASK.prepare(sentences, LABELS, pieces, shape(BERT, 64)))
    alone = [predicted_tags(net, TASK.prepare([some], LABELS, pieces, shape(BERT, 64)))[0] for some in sentences]
    assert together == alone
    assert len({tag for tags in together for tag in tags}) > 2
