import math

import pytest
import torch
from torch.nn import functional as F

from lingraft import masked_lm
from lingraft.adaptation import initial_rows
from lingraft.artifact import Artifact, Kind
from lingraft.blocks import split
from lingraft.embeddings import swap, vocabulary_of
from lingraft.encoder import Encoder, Vocabulary
from lingraft.masking import Maskable, mask
from lingraft.models import Primary, load_embeddings, load_primary
from lingraft.tokenizer import OWN_IDS
from tests.workshop import Workshop


def maskable(vocabulary: int) -> Maskable:
    return Maskable.of(vocabulary, OWN_IDS, torch.device("cpu"))


@pytest.fixture
def primary(workshop: Workshop) -> Primary:
    return load_primary(workshop.primary)


def test_the_loss_is_the_mean_of_the_heads_cross_entropies(workshop: Workshop, primary: Primary) -> None:
    tokens_BT, encoder = workshop.tokens("en"), primary.encoder

    def loss(depths: tuple[int, ...]) -> torch.Tensor:
        return masked_lm.loss(encoder, depths, 0.15, torch.Generator().manual_seed(5))(tokens_BT)

    pieces = maskable(len(encoder.vocabulary))
    masked = mask(tokens_BT, 0.15, pieces, torch.Generator().manual_seed(5))
    logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, (1, 2, 3))
    each = [F.cross_entropy(logits[depth], masked.targets_M) for depth in (1, 2, 3)]
    assert len({float(one.detach()) for one in each}) == 3
    torch.testing.assert_close(loss((1, 2, 3)), sum(each) / 3)
    torch.testing.assert_close(loss((2,)), each[1])


def test_every_batch_is_masked_anew(workshop: Workshop, primary: Primary) -> None:
    loss_of = masked_lm.loss(primary.encoder, (3,), 0.15, torch.Generator().manual_seed(5))
    first, second = (float(loss_of(workshop.tokens("en")).detach()) for _ in range(2))
    assert first != second


def test_an_untrained_model_is_as_good_as_guessing(workshop: Workshop) -> None:
    vocabulary = workshop.recipe.tokenizer.vocabulary
    with torch.random.fork_rng():
        torch.manual_seed(1)
        fresh = Encoder(workshop.recipe.encoder, vocabulary)
    loss_of = masked_lm.loss(fresh, (1, 2, 3), 0.15, torch.Generator().manual_seed(5))
    assert float(loss_of(workshop.tokens("en")).detach()) == pytest.approx(math.log(vocabulary), rel=0.05)


def test_pretraining_learns(workshop: Workshop, primary: Primary) -> None:
    blocks_NT = split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "test").all()
    chance = 1 / workshop.recipe.tokenizer.vocabulary
    for share in masked_lm.accuracy(primary.encoder, blocks_NT, (1, 2, 3)).values():
        assert share > 6 * chance


def test_accuracy_is_the_share_of_masked_tokens_found(workshop: Workshop, primary: Primary) -> None:
    blocks_NT = split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "test").all()
    always = int(blocks_NT[blocks_NT > 4].mode().values)
    with torch.no_grad():
        primary.encoder.vocabulary.bias_V[always] = 1e6
    masked = mask(blocks_NT[:64].long(), 0.15, maskable(120), torch.Generator().manual_seed(masked_lm._JUDGED_SEED))
    share = float((masked.targets_M == always).float().mean())
    assert masked_lm.accuracy(primary.encoder, blocks_NT[:64], (3,)) == {3: pytest.approx(share)}
    assert 0 < share < 1


def test_accuracy_is_the_same_each_time_and_for_each_set_of_heads(workshop: Workshop, primary: Primary) -> None:
    blocks_NT = split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "test").all()
    together = masked_lm.accuracy(primary.encoder, blocks_NT, (1, 3))
    assert together == masked_lm.accuracy(primary.encoder, blocks_NT, {3, 1})
    assert together[3] == masked_lm.accuracy(primary.encoder, blocks_NT, (3,))[3]


def test_adaptation_learns_what_the_primary_can_use(workshop: Workshop, primary: Primary) -> None:
    blocks_NT = split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "test").all()
    learned = load_embeddings(workshop.embeddings["de"])
    rows = initial_rows(workshop.recipe, primary, learned.tokenizer)

    @torch.no_grad()
    def losses(vocabulary: Vocabulary) -> list[float]:
        swap(primary.encoder, vocabulary)
        return [
            float(masked_lm.loss(primary.encoder, (depth,), 0.15, torch.Generator().manual_seed(5))(blocks_NT))
            for depth in (workshop.recipe.adaptation.depth, primary.encoder.shape.layers)
        ]

    mini_before, primary_before = losses(vocabulary_of(rows.table_VD, rows.bias_V))
    mini_after, primary_after = losses(learned.vocabulary)
    assert mini_after < mini_before - 0.05
    assert primary_after < primary_before - 0.05
