"""Rows of the source that a language's last pieces refer to."""

from pathlib import Path

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, TokenizerError
from lingraft.model.encoder import BorrowedRows, Encoder
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.adapt import adapt
from lingraft.tasks.finetuned import load_task
from lingraft.training.batches import MaskedLmBatch
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.schedule import ignore_metrics
from tests.borrowing import Borrowing
from tests.workshop import Workshop, same_tensors


@pytest.fixture(scope="module")
def german(workshop: Workshop) -> Borrowing:
    return Borrowing.shared()


def test_a_name_that_only_the_source_knows_has_the_sources_row_bit_for_bit(german: Borrowing) -> None:
    primary, learned = german.loaded()
    name, index, source_id = german.name()
    assert learned.tokenizer.encode(name) == [index]
    assert primary.tokenizer.encode(name) == [source_id]
    [[row_D]] = learned.vocabulary.lookup(torch.tensor([[index]]))
    assert torch.equal(row_D, primary.source.table_VD[source_id])
    with torch.no_grad():
        before_TD = primary.encoder.eval().hidden_states(torch.tensor([[0, source_id, 2]]), (3,))[3]
        primary.swap_in(learned)
        logits_MV = primary.encoder.masked_logits(torch.tensor([[0, 4, 2]]), torch.tensor([1]), (3,))[3]
        swap(primary.encoder, primary.source)
        sources_MV = primary.encoder.masked_logits(torch.tensor([[0, 4, 2]]), torch.tensor([1]), (3,))[3]
        assert torch.equal(primary.encoder.hidden_states(torch.tensor([[0, source_id, 2]]), (3,))[3], before_TD)
    assert logits_MV.shape[1] == len(learned.vocabulary) == len(learned.tokenizer)
    assert not torch.allclose(logits_MV[0, 0], sources_MV[0, 0]), "special pieces are the language's own"


def test_an_artifact_has_the_languages_own_rows_alone(german: Borrowing) -> None:
    found = Artifact.load(german.embeddings, Kind.EMBEDDINGS)
    pieces = Tokenizer.load(german.embeddings)
    own = len(pieces.own)
    assert found.tensors("vocabulary").keys() == {"table_VD", "bias_V"}
    assert found.tensors("vocabulary")["table_VD"].shape[0] == own == german.recipe.tokenizer.vocabulary
    assert len(pieces) == own + found.manifest.details["borrowed"]


def test_the_sources_table_is_shared_and_not_copied(german: Borrowing) -> None:
    primary, learned = german.loaded()
    assert learned.vocabulary.borrowed
    assert learned.vocabulary.borrowed.table_SD.data_ptr() == primary.source.table_VD.data_ptr()
    assert learned.vocabulary.state_dict().keys() == {"table_VD", "bias_V"}
    assert {id(each) for each in learned.vocabulary.parameters()} == {
        id(learned.vocabulary.table_VD),
        id(learned.vocabulary.bias_V),
    }


def test_a_body_may_take_other_languages_before_one_that_borrows(german: Borrowing, workshop: Workshop) -> None:
    primary, expected = german.loaded()
    primary.swap_in(load_embeddings(workshop.embeddings["tr"]))
    primary.swap_in(again := load_embeddings(german.embeddings))
    assert all(torch.equal(*pair) for pair in zip(again.vocabulary.whole(), expected.vocabulary.whole(), strict=True))


def test_adaptation_changes_a_languages_own_rows_and_nothing_else(
    german: Borrowing, workshop: Workshop, tmp_path: Path
) -> None:
    primary, learned = german.loaded()
    adapt(german.recipe, german.primary, german.blocks, german.tokenizer, 1, tmp_path / "again", ignore_metrics)
    again = load_embeddings(tmp_path / "again")
    assert again.fingerprint == learned.fingerprint
    assert same_tensors(load_primary(german.primary).encoder.state_dict(), primary.encoder.state_dict())


@pytest.mark.parametrize("below_heads", [True, False])
def test_losses_and_gradients_are_those_of_the_whole_table(german: Borrowing, below_heads: bool) -> None:
    primary, learned = german.loaded()
    encoder, own = primary.encoder, len(learned.tokenizer.own)
    tokens_BT = open_split(load_blocks(german.blocks, learned.tokenizer, 32), "train").take(torch.arange(4)).long()
    tokens_BT[:, 3] = german.name()[1]
    table_VD, bias_V = (tensor.detach().clone() for tensor in learned.vocabulary.whole())
    found = []
    for vocabulary in (learned.vocabulary, make_vocabulary(table_VD, bias_V)):
        swap(encoder, vocabulary)
        encoder.requires_grad_(False)
        vocabulary.requires_grad_(True)
        if below_heads:
            loss = MaskedLmLoss(encoder, (1, 3), 0.5, seed=3)(MaskedLmBatch(tokens_BT, 0))
        else:
            loss = encoder.hidden_states(tokens_BT, (2,))[2].square().mean()
        loss.backward()
        gradient_VD = vocabulary.table_VD.grad
        assert gradient_VD is not None
        found.append((loss.detach(), gradient_VD.to_dense()[:own]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_another_primary_is_refused(german: Borrowing, workshop: Workshop, tmp_path: Path) -> None:
    stranger = load_primary(workshop.other_primary(tmp_path / "other"))
    learned = load_embeddings(german.embeddings)
    with pytest.raises(AlignmentError, match=stranger.fingerprint):
        stranger.lend_to(learned)
    assert learned.vocabulary.borrowed is None


def test_a_primary_of_another_tokenizer_lends_nothing(german: Borrowing, workshop: Workshop) -> None:
    primary = load_primary(german.primary)
    borrowed = Tokenizer.load(german.tokenizer)
    with pytest.raises(TokenizerError, match=f"borrows pieces of tokenizer {borrowed.lender}, not of .* of 'tr'"):
        borrowed.require_lender(Tokenizer.load(workshop.tokenizers["tr"]))
    assert primary.borrowed_rows(Tokenizer.load(workshop.tokenizers["de"])) is None


def test_a_task_refuses_a_language_whose_rows_no_primary_has_lent(german: Borrowing, workshop: Workshop) -> None:
    task = load_task(workshop.tasks[1])
    with pytest.raises(TokenizerError, match="pieces of 'de' have rows of the primary's"):
        task.swap_in(load_embeddings(german.embeddings))
    _, learned = german.loaded()
    task.swap_in(learned)
    assert task.net.encoder.vocabulary is learned.vocabulary


def test_rows_are_looked_up_and_multiplied_in_the_order_of_ids() -> None:
    encoder = Encoder(Borrowing.shared().recipe.encoder, 5)
    source = make_vocabulary(torch.arange(6.0)[:, None].expand(6, 2).clone(), torch.arange(6.0))
    made = make_vocabulary(
        torch.full((3, 2), -1.0), torch.zeros(3), borrowed=BorrowedRows(torch.tensor([4, 1]), source)
    )
    assert made.lookup(torch.tensor([[3, 0, 4]])).tolist() == [[[4, 4], [-1, -1], [1, 1]]]
    assert made.logits(torch.ones(1, 2)).tolist() == [[-2, -2, -2, 12, 3]]
    assert swap(encoder, made) is not made
    assert len(encoder.vocabulary) == 5
