import pytest
import torch
from torch.nn import functional as F

from lingraft.config.encoder import Family
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder
from lingraft.tasks.classification import Classification, Classified, Classifier, confusion, predicted
from lingraft.tasks.labelled_texts import Example
from lingraft.tasks.pairs import Encoded
from tests.tasks.little import BERT, ROBERTA, VOCABULARY, drawn, encoder, shape

TASK = Classification()


def numbered(lengths: list[int], classes: int = 2) -> Classified:
    """Texts of given lengths, with classes in turn; the second token numbers the text."""
    rows = [
        [DEFAULT_SPECIAL_IDS.begin, 5 + number % 100, *[5 + 7 * number % 110] * (length - 3), DEFAULT_SPECIAL_IDS.end]
        for number, length in enumerate(lengths)
    ]
    return Classified(Encoded(rows, None, lengths), torch.arange(len(lengths)) % classes, DEFAULT_SPECIAL_IDS.pad)


def classifier(family: Family = ROBERTA, classes: int = 3, dropout: float = 0.0) -> Classifier:
    net = TASK.net(encoder(shape(family, dropout=dropout)), [str(number) for number in range(classes)])
    with torch.no_grad():
        net.out.weight.normal_(std=1.0, generator=torch.Generator().manual_seed(1))
        net.dense.weight.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    return net.eval()


@torch.no_grad()
@pytest.mark.parametrize("family", [ROBERTA, BERT])
def test_an_examples_logits_do_not_depend_on_its_neighbours(pieces: Tokenizer, family: Family) -> None:
    pairs = [Example("", texts, "a") for texts in (("ba", "ki"), ("ba de ki lo", "na"), ("", "mu mu mu"))]
    data = TASK.prepare(pairs, ["a", "b"], pieces, shape(family))
    net = classifier(family)
    together = data.batch(torch.arange(3))
    logits_BC = net(*together[:3])
    for index in range(3):
        alone = data.batch(torch.tensor([index]))
        torch.testing.assert_close(net(*alone[:3])[0], logits_BC[index], rtol=0, atol=1e-5)
    assert (logits_BC[0] - logits_BC[1]).abs().max() > 0.01


@torch.no_grad()
def test_the_segments_of_a_pair_reach_the_encoder(pieces: Tokenizer) -> None:
    data = TASK.prepare([Example("", ("ba", "ki"), "a")], ["a", "b"], pieces, shape(BERT))
    net, batch = classifier(BERT), data.batch(torch.tensor([0]))
    assert (net(*batch[:3]) - net(batch.tokens_BT, batch.visible_BT)).abs().max() > 1e-3


@torch.no_grad()
def test_the_head_is_robertas() -> None:
    net, batch = classifier(), numbered([4, 9]).batch(torch.arange(2))
    first_BD = net.encoder.hidden_states(batch.tokens_BT, (1,), batch.visible_BT)[1][:, 0]
    expected_BC = F.linear(torch.tanh(F.linear(first_BD, net.dense.weight, net.dense.bias)), net.out.weight)
    torch.testing.assert_close(net(*batch[:3]), expected_BC + net.out.bias)


@torch.no_grad()
def test_confusion_counts_every_example_in_its_cell() -> None:
    net, data = classifier(), numbered([4 + number % 9 for number in range(150)], classes=3)
    expected_CC = torch.zeros(3, 3, dtype=torch.long)
    for number, label in enumerate(data.labels_N.tolist()):
        expected_CC[label, int(net(*data.batch(torch.tensor([number]))[:3]).argmax())] += 1
    found_CC = confusion(data.labels_N, predicted(net, data), classes=3)
    assert torch.equal(found_CC, expected_CC)
    assert (found_CC.sum(0) > 0).sum() > 1


@pytest.mark.parametrize(("always", "score"), [(0, 3 / 6), (1, 2 / 6), (2, 1 / 6)])
def test_a_net_that_always_names_one_class_scores_that_classs_share(always: int, score: float) -> None:
    net = classifier()
    with torch.no_grad():
        net.out.weight.zero_()
        net.out.bias[always] = 1.0
    data = numbered([5] * 6)
    judged = TASK.judge(net, Classified(data.encoded, torch.tensor([0, 1, 0, 2, 1, 0]), DEFAULT_SPECIAL_IDS.pad), "en")
    assert (judged.score, judged.baseline) == (pytest.approx(score), pytest.approx(3 / 6))
    named = 6 * score
    assert judged.others == {"macro_F1": pytest.approx(2 * named / (named + 6) / 3)}
    assert judged.confusion_CC is not None
    assert judged.confusion_CC[:, always].tolist() == [3, 2, 1]
    assert judged.tally.found_N.tolist() == [label == always for label in [0, 1, 0, 2, 1, 0]]


@pytest.mark.parametrize("family", [ROBERTA, BERT])
def test_training_fits_a_few_examples_of_five_classes(pieces: Tokenizer, family: Family) -> None:
    words = ("ba", "de", "ki", "lo", "mu")
    pairs = [Example("", (first, second), first) for first in words for second in words]
    labels = TASK.labels(pairs)
    data = TASK.prepare(pairs, labels, pieces, shape(family))
    torch.manual_seed(1)
    net = TASK.net(Encoder(shape(family), VOCABULARY), labels)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    assert TASK.judge(net, data, "en").score < 0.5
    net.train()
    for batch in drawn(data, 25, 60):
        TASK.loss(net, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    judged = TASK.judge(net, data, "en")
    assert (judged.score, judged.baseline) == (1.0, pytest.approx(0.2))
