import pytest
import torch

from lingraft.artifact import Artifact, Kind
from lingraft.embeddings import Initialised, initialise, overlap, swap, vocabulary_of
from lingraft.encoder import INITIAL_STD, Encoder
from lingraft.models import load_embeddings, load_primary
from lingraft.stages import initial_rows
from lingraft.tokenizer import SPECIAL_PIECES, Tokenizer
from tests.workshop import Workshop

SOURCE = [*SPECIAL_PIECES, "ba", "de", "ki", "lo"]
TARGET = [*SPECIAL_PIECES, "lo", "xa", "ba", *(f"new{number}" for number in range(500))]
WIDTH = 24


def rows(copy_overlap: bool = True, seed: int = 1) -> Initialised:
    table_VD = torch.arange(len(SOURCE) * WIDTH, dtype=torch.float32).view(-1, WIDTH) + 10
    bias_V = torch.arange(len(SOURCE), dtype=torch.float32) + 1
    return initialise(table_VD, bias_V, SOURCE, TARGET, copy_overlap, torch.Generator().manual_seed(seed))


def test_overlap_is_by_surface_not_by_id() -> None:
    assert overlap(["a", "b", "c"], ["c", "x", "a"]) == [(0, 2), (2, 0)]
    assert overlap(["a"], ["x"]) == []


def test_rows_of_shared_pieces_are_copied_bit_for_bit_with_their_bias() -> None:
    found = rows()
    assert found.copied == len(SPECIAL_PIECES) + 2
    for piece in [*SPECIAL_PIECES, "ba", "lo"]:
        mine, theirs = TARGET.index(piece), SOURCE.index(piece)
        assert found.table_VD[mine].tolist() == list(range(theirs * WIDTH + 10, (theirs + 1) * WIDTH + 10))
        assert found.bias_V[mine] == theirs + 1


def test_all_other_rows_are_drawn_anew_and_none_is_zero() -> None:
    found = rows()
    drawn = found.table_VD[[index for index, piece in enumerate(TARGET) if piece not in SOURCE]]
    assert float(drawn.std()) == pytest.approx(INITIAL_STD, rel=0.05)
    assert float(drawn.mean()) == pytest.approx(0, abs=0.001)
    assert drawn.any(dim=1).all()
    assert len(drawn.unique(dim=0)) == len(drawn)
    assert found.bias_V.count_nonzero() == found.copied


def test_without_overlap_only_special_tokens_are_copied() -> None:
    found = rows(copy_overlap=False)
    assert found.copied == len(SPECIAL_PIECES)
    assert torch.equal(found.table_VD[: found.copied], rows().table_VD[: found.copied])
    assert found.table_VD[found.copied :].abs().max() < 1


def test_the_seed_decides_the_rows() -> None:
    assert torch.equal(rows(seed=1).table_VD, rows(seed=1).table_VD)
    assert not torch.equal(rows(seed=1).table_VD, rows(seed=2).table_VD)


def test_a_recipe_says_whether_rows_are_copied(workshop: Workshop) -> None:
    primary, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    settings = workshop.recipe.adaptation.model_copy(update={"initialisation": "random"})
    random = workshop.recipe.model_copy(update={"adaptation": settings})
    shared = set(primary.tokenizer.pieces()) & set(pieces.pieces())
    assert initial_rows(workshop.recipe, primary, pieces).copied == len(shared) > len(SPECIAL_PIECES)
    assert initial_rows(random, primary, pieces).copied == len(SPECIAL_PIECES)
    details = Artifact.load(workshop.embeddings["de"], Kind.EMBEDDINGS).manifest.details
    assert details["overlap"] == len(shared)


@torch.no_grad()
def logits(encoder: Encoder, workshop: Workshop) -> torch.Tensor:
    return encoder.eval().masked_logits(workshop.tokens("en"), torch.arange(40), encoder.depths)[3]


def test_swapping_back_restores_the_logits_bit_for_bit(workshop: Workshop) -> None:
    primary, german = load_primary(workshop.primary), load_embeddings(workshop.embeddings["de"])
    before_MV = logits(primary.encoder, workshop)
    own = swap(primary.encoder, german.vocabulary)
    assert not torch.equal(logits(primary.encoder, workshop), before_MV)
    assert swap(primary.encoder, own) is german.vocabulary
    assert torch.equal(logits(primary.encoder, workshop), before_MV)


def test_a_swap_changes_the_vocabulary_and_leaves_the_body(workshop: Workshop) -> None:
    primary, german = load_primary(workshop.primary), load_embeddings(workshop.embeddings["de"])
    body = {name: tensor.clone() for name, tensor in primary.encoder.body_tensors().items()}
    swap(primary.encoder, german.vocabulary)
    assert all(torch.equal(tensor, body[name]) for name, tensor in primary.encoder.body_tensors().items())
    assert primary.encoder.vocabulary is german.vocabulary


def test_a_vocabulary_may_have_another_size(workshop: Workshop) -> None:
    encoder = load_primary(workshop.primary).encoder
    swap(encoder, vocabulary_of(torch.zeros(7, encoder.shape.width), torch.arange(7.0)))
    found = encoder.masked_logits(torch.tensor([[0, 6, 2]]), torch.tensor([1]), (1,))[1]
    assert found.tolist() == [list(range(7))]
    assert len(encoder.vocabulary) == 7
