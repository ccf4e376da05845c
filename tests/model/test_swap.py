import torch

from lingraft.model.encoder import Encoder
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary, swap
from tests.workshop import Workshop


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


def test_a_vocabulary_may_have_another_size(workshop: Workshop) -> None:
    encoder = load_primary(workshop.primary).encoder
    swap(encoder, make_vocabulary(torch.zeros(7, encoder.shape.width), torch.arange(7.0)))
    found = encoder.masked_logits(torch.tensor([[0, 6, 2]]), torch.tensor([1]), (1,))[1]
    assert found.tolist() == [list(range(7))]
    assert len(encoder.vocabulary) == 7
