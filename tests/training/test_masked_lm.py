import pytest
import torch
from torch.nn import functional as F

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.blocks import open_split
from lingraft.data.masking import MaskingVocabulary, mask_tokens
from lingraft.data.rng import derive_seed
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder
from lingraft.model.loading import LoadedPrimary, load_primary
from lingraft.training import masked_lm
from lingraft.training.batches import MaskedLmBatch
from lingraft.training.masked_lm import MaskedLmLoss
from tests.workshop import Workshop


def maskable(vocabulary: int) -> MaskingVocabulary:
    return MaskingVocabulary.of(vocabulary, DEFAULT_SPECIAL_IDS, torch.device("cpu"))


@pytest.fixture
def primary(workshop: Workshop) -> LoadedPrimary:
    return load_primary(workshop.primary)


def test_the_loss_is_the_mean_of_the_heads_cross_entropies(workshop: Workshop, primary: LoadedPrimary) -> None:
    tokens_BT, encoder = workshop.tokens("en"), primary.encoder

    def loss(depths: tuple[int, ...]) -> torch.Tensor:
        return MaskedLmLoss(encoder, depths, 0.15, seed=5)(MaskedLmBatch(tokens_BT, 12))

    pieces = maskable(len(encoder.vocabulary))
    masked = mask_tokens(tokens_BT, 0.15, pieces, derive_seed("masks", 5), first=12)
    logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, (1, 2, 3))
    each = [F.cross_entropy(logits[depth], masked.targets_M) for depth in (1, 2, 3)]
    assert len({float(one.detach()) for one in each}) == 3
    torch.testing.assert_close(loss((1, 2, 3)), sum(each) / 3)
    torch.testing.assert_close(loss((2,)), each[1])


def test_a_block_is_masked_anew_each_time_it_comes(workshop: Workshop, primary: LoadedPrimary) -> None:
    loss_of = MaskedLmLoss(primary.encoder, (3,), 0.15, seed=5)
    first, again, later = (float(loss_of(MaskedLmBatch(workshop.tokens("en"), place)).detach()) for place in (0, 0, 4))
    assert first == again != later


def test_accuracy_is_the_share_of_masked_tokens_found(workshop: Workshop, primary: LoadedPrimary) -> None:
    blocks_NT = open_split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "test").all()
    always = int(blocks_NT[blocks_NT > 4].mode().values)
    with torch.no_grad():
        primary.encoder.vocabulary.bias_V[always] = 1e6
    masked = mask_tokens(blocks_NT[:64].long(), 0.15, maskable(120), masked_lm._EVALUATION_SEED)
    share = float((masked.targets_M == always).float().mean())
    assert masked_lm.accuracy(primary.encoder, blocks_NT[:64], (3,)) == {3: pytest.approx(share)}
    assert 0 < share < 1


def test_masked_tokens_are_judged_without_dropout(workshop: Workshop, primary: LoadedPrimary) -> None:
    blocks_NT = open_split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "test").all()
    shape = primary.encoder.shape.model_copy(update={"dropout": 0.5})
    dropping = Encoder(shape, len(primary.tokenizer))
    dropping.load_state_dict(primary.encoder.state_dict())
    for measure in (masked_lm.accuracy, masked_lm.mean_loss):
        assert measure(dropping.train(), blocks_NT, (3,)) == measure(primary.encoder, blocks_NT, (3,))
