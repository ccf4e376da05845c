"""Retrieval as a task: examples, pooling, prefixes and the loss."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from lingraft.config.tasks import DenseLayer, NormaliseLayer, Retrieval
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import LingraftError, TextError, TrainingError
from lingraft.tasks.query_passages import QueryPassage, query_passages_of_rows, query_passages_or_errors
from lingraft.tasks.retrieval import PassageRetrieval, TextEmbedder, embed
from tests.tasks.little import BERT, ROBERTA, encoder, shape

NORMALISE = NormaliseLayer(kind="normalise")
EXAMPLES = [
    QueryPassage("one", "ba", "ba de ki"),
    QueryPassage("two", "lo mu", "lo mu na"),
    QueryPassage("three", "de", "ba de ki"),
]


def task(**settings: object) -> PassageRetrieval:
    return PassageRetrieval(Retrieval.model_validate(settings))


def test_equal_passages_are_one_and_prefixes_stand_before_both(pieces: Tokenizer) -> None:
    data = task(query_prefix="ki ", passage_prefix="na mu ").prepare(EXAMPLES, [], pieces, shape())
    assert (len(data), len(data.passages), data.answers_N.tolist()) == (3, 2, [0, 1, 0])
    special = pieces.special
    assert data.queries.encoded.rows[0] == [special.begin, *pieces.encode("ki ba"), special.end]
    assert data.passages.encoded.rows[1] == [special.begin, *pieces.encode("na mu lo mu na"), special.end]
    assert data.length(0) == len(data.passages.encoded.rows[0])


def test_one_passage_is_nothing_to_choose_from(pieces: Tokenizer) -> None:
    with pytest.raises(TextError, match=r"1 queries have 1 passage to choose from\. Add"):
        task().prepare(EXAMPLES[:1], [], pieces, shape())


@torch.no_grad()
@pytest.mark.parametrize("family", [ROBERTA, BERT])
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_a_vector_does_not_depend_on_its_neighbours(pooling: str, family: object, pieces: Tokenizer) -> None:
    kind = task(pooling=pooling, layers=(DenseLayer(kind="dense", width=6, activation="tanh"), NORMALISE))
    net = kind.net(encoder(shape(family)), [])
    data = kind.prepare(EXAMPLES, [], pieces, shape(family))
    vectors_NE = embed(net, data.queries)
    assert vectors_NE.shape == (3, 6)
    torch.testing.assert_close(vectors_NE.norm(dim=1), torch.ones(3))
    for row in range(3):
        alone = net(*data.queries.batch(torch.tensor([row])))
        torch.testing.assert_close(alone[0], vectors_NE[row], rtol=0, atol=1e-5)
    assert (vectors_NE[0] - vectors_NE[1]).abs().max() > 0.01


def test_weights_that_are_not_finite_embed_nothing(pieces: Tokenizer) -> None:
    net = task().net(encoder(shape()), [])
    net.encoder.vocabulary.table_VD.data.fill_(torch.nan)
    with pytest.raises(TrainingError, match="vectors of 3 of 3 texts are not finite"):
        embed(net, task().prepare(EXAMPLES, [], pieces, shape()).queries)


def test_the_loss_is_that_of_finding_the_passage_among_the_others_of_the_batch(pieces: Tokenizer) -> None:
    """A passage that answers two queries of a batch is there once."""
    kind = task()
    net: TextEmbedder = kind.net(encoder(shape()), [])
    data = kind.prepare(EXAMPLES, [], pieces, shape())
    loss = kind.loss(net, data.batch(torch.arange(3)))
    cosines_NP = 20 * embed(net, data.queries) @ embed(net, data.passages).T
    torch.testing.assert_close(loss, F.cross_entropy(cosines_NP, data.answers_N))
    loss.backward()
    assert all(parameter.grad is not None for parameter in net.encoder.layers.parameters())


def test_finetuning_finds_passages_that_it_has_seen(pieces: Tokenizer) -> None:
    kind = task()
    net = kind.net(encoder(shape()), [])
    words = ["ba", "de", "ki", "lo", "mu", "na"]
    examples = [QueryPassage("", f"{word} {word}", f"{words[-place]} {word}") for place, word in enumerate(words)]
    data = kind.prepare(examples, [], pieces, shape())
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        kind.loss(net.train(), data.batch(torch.arange(len(data)))).backward()
        optimizer.step()
    assert kind.judge(net, data, "en").score == 1.0


def test_files_have_a_query_and_a_passage(tmp_path: Path) -> None:
    path = tmp_path / "some.tsv"
    path.write_text("who\tthe cat\nwhere\t\n", encoding="utf-8")
    good, bad = query_passages_or_errors(path, "en")
    assert isinstance(good, QueryPassage)
    assert (good.query, good.passage) == ("who", "the cat")
    assert isinstance(bad, LingraftError)
    assert "line 2: the query is 'where' and the passage ''" in str(bad)
    path.write_text("anchor\tpositive\nwho\tthe cat\n")
    assert list(query_passages_or_errors(path, "en")) == [QueryPassage(f"{path}, line 2", "who", "the cat")]
    (row,) = query_passages_of_rows([{"question": "who", "positive": "the cat"}], "dataset 'some'")
    assert (row.query, row.passage) == ("who", "the cat")
