from itertools import islice

import pytest
import torch

from lingraft.artifact import Artifact, Kind
from lingraft.config import EncoderShape
from lingraft.documents import Document
from lingraft.encoder import Encoder
from lingraft.errors import TextError
from lingraft.models import load_primary, load_task
from lingraft.tasks import labelled
from lingraft.tasks.labelled import Classifier, Labelled
from lingraft.text import load_split
from lingraft.tokenizer import BEGIN, END, PAD, Tokenizer
from tests.workshop import Workshop


@pytest.fixture
def pieces(workshop: Workshop) -> Tokenizer:
    return Tokenizer.load(workshop.tokenizers["en"])


def numbered(lengths: list[int]) -> Labelled:
    """Documents of given lengths, with two classes in turn; the second token numbers the document."""
    rows = [[BEGIN, 5 + number, *[9] * (length - 3), END] for number, length in enumerate(lengths)]
    return Labelled(rows, torch.arange(len(lengths)) % 2, 0)


def classifier(shape: EncoderShape) -> Classifier:
    return Classifier(Encoder(shape, 120), 3).eval()


def test_classes_are_the_labels_of_the_training_documents_in_order() -> None:
    documents = [Document(str(number), "text", label) for number, label in enumerate(("b", "a", "b", "c"))]
    assert labelled.label_names(documents) == ["a", "b", "c"]


@pytest.mark.parametrize("labels", [[], ["a", "a"], [None, "a"]])
def test_one_class_is_no_task(labels: list[str | None]) -> None:
    with pytest.raises(TextError, match="two or more labels"):
        labelled.label_names([Document(str(number), "text", label) for number, label in enumerate(labels)])


def test_a_document_begins_and_ends_and_keeps_its_beginning(pieces: Tokenizer) -> None:
    words = "ba de ki lo mu na"
    ids = pieces.encode(words)
    assert len(ids) > 4
    for block_tokens in (len(ids) + 2, len(ids) + 1, 6):
        found = labelled.encode([words], pieces, block_tokens)
        assert found.rows == [[BEGIN, *ids[: block_tokens - 2], END]]
        assert found.whole_tokens == [len(ids) + 2]


def test_documents_that_are_cut_are_counted(pieces: Tokenizer) -> None:
    documents = [
        Document("short", "ba", "a"),
        Document("long", "ba de ki lo mu na " * 5, "b"),
        Document("none", "", "a"),
    ]
    found = labelled.prepare(documents, ["a", "b"], pieces, 12)
    assert (len(found), found.truncated) == (3, 1)
    assert found.labels_N.tolist() == [0, 1, 0]
    assert [len(row) for row in found.tokens][1:] == [12, 2]


@pytest.mark.parametrize("label", ["c", None])
def test_a_label_that_the_task_does_not_know_is_refused_with_those_it_does(
    pieces: Tokenizer, label: str | None
) -> None:
    with pytest.raises(TextError, match=rf"document 'page' has label {label!r}; the task knows \['a', 'b'\]"):
        labelled.prepare([Document("page", "ba", label)], ["a", "b"], pieces, 12)


def test_padding_fills_to_the_longest_and_is_not_visible() -> None:
    tokens_BT, visible_BT = labelled.pad([[BEGIN, 9, END], [BEGIN, END]])
    assert tokens_BT.tolist() == [[BEGIN, 9, END], [BEGIN, END, PAD]]
    assert visible_BT.tolist() == [[True, True, True], [True, True, False]]


def test_every_document_comes_once_an_epoch_with_its_label() -> None:
    data = numbered([4, 5, 6, 7, 8, 9, 10])
    drawn = list(islice(labelled.batches(data, 3, torch.Generator().manual_seed(1)), 6))
    assert [len(batch.labels_B) for batch in drawn] == [3, 3, 1] * 2
    epochs = [torch.cat([batch.tokens_BT[:, 1] for batch in drawn[at : at + 3]]).tolist() for at in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(5, 12))
    assert epochs[0] != epochs[1]
    for batch in drawn:
        assert torch.equal((batch.tokens_BT[:, 1] - 5) % 2, batch.labels_B)


@torch.no_grad()
def test_a_documents_logits_do_not_depend_on_its_neighbours(workshop: Workshop) -> None:
    model = classifier(workshop.recipe.encoder)
    rows = numbered([4, 30, 11]).tokens
    together_BC = model(*labelled.pad(rows))
    for index, row in enumerate(rows):
        torch.testing.assert_close(model(*labelled.pad([row]))[0], together_BC[index], rtol=0, atol=1e-5)


@torch.no_grad()
def test_confusion_counts_every_document_in_its_cell(workshop: Workshop) -> None:
    model = classifier(workshop.recipe.encoder)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.normal_(std=0.5, generator=generator)
    lengths = [4 + number % 9 for number in range(150)]
    rows = [[BEGIN, 5 + number % 100, *[9] * (length - 3), END] for number, length in enumerate(lengths)]
    data = Labelled(rows, torch.arange(150) % 3, 0)
    expected_CC = torch.zeros(3, 3, dtype=torch.long)
    for row, label in zip(rows, data.labels_N.tolist(), strict=True):
        expected_CC[label, int(model(*labelled.pad([row])).argmax())] += 1
    found_CC = labelled.confusion(model, data)
    assert torch.equal(found_CC, expected_CC)
    assert (found_CC.sum(0) > 0).sum() > 1


def test_scores_are_read_from_the_confusion() -> None:
    counts_CC = torch.tensor([[5, 1, 0], [2, 1, 0], [1, 0, 0]])
    assert labelled.accuracy(counts_CC) == pytest.approx(6 / 10)
    assert labelled.majority_share(counts_CC) == pytest.approx(6 / 10)
    assert labelled.majority_share(counts_CC.T) == pytest.approx(8 / 10)


def test_dropout_is_off_when_documents_are_judged(workshop: Workshop) -> None:
    shape = workshop.recipe.encoder.model_copy(update={"dropout": 0.5})
    model = classifier(shape).train()
    data = numbered([8] * 64)
    assert torch.equal(labelled.confusion(model, data), labelled.confusion(model.train(), data))


def test_finetuning_fits_its_training_documents(workshop: Workshop) -> None:
    task = load_task(workshop.tasks[1])
    primary = load_primary(workshop.primary)
    task.swap_in(primary)
    documents = load_split(Artifact.load(workshop.texts["en"], Kind.TEXT), "train")
    data = labelled.prepare(documents, task.labels, primary.tokenizer, workshop.recipe.encoder.block_tokens)
    counts_CC = labelled.confusion(task.classifier, data)
    assert labelled.accuracy(counts_CC) > labelled.majority_share(counts_CC) + 0.05
