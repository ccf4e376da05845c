"""Whether a device computes what a CPU does: `pytest --device cuda tests/training/test_devices.py` asks a GPU.

Without `--device`, a CPU takes its place. Differences are relative to the largest value that the CPU has.
"""

import contextlib
import copy
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.masking import MaskingVocabulary, mask_tokens
from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder, Vocabulary, freeze_except, mini_model
from lingraft.model.swap import swap
from lingraft.signals import Interruption
from lingraft.training.batches import MaskedLmBatch, block_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.loop import Plan, TrainingLoop
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.optimizer import Optimizer
from lingraft.training.schedule import Schedule
from lingraft.training.training_state import TrainingState

WIDTH, LAYERS, DEPTH, VOCABULARY, TOKENS, MASK_RATE, SEED, STEPS = 128, 3, 2, 300, 16, 0.15, 1, 6
FP32, GRADIENT, TRAINED, BF16 = 1e-4, 1e-3, 1e-2, 6e-2
"""Bounds: of logits, of gradients, of losses of several updates, and of all that is computed in bf16."""
CPU = torch.device("cpu")
both_families = pytest.mark.parametrize("family", ["roberta", "modern"])


@pytest.fixture
def on(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


def encoder(family: str, dropout: float = 0.0) -> Encoder:
    """An encoder of random weights, the same whenever it is made."""
    sizes = {"width": WIDTH, "layers": LAYERS, "attention_heads": 2, "mlm_heads": (DEPTH, LAYERS)}
    shape = EncoderShape(**sizes, block_tokens=TOKENS, dropout=dropout, family=Family.model_validate(family))
    torch.manual_seed(SEED)
    return Encoder(shape, VOCABULARY)


def blocks() -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(len(DEFAULT_SPECIAL_IDS), VOCABULARY, (16, TOKENS), generator=generator, dtype=torch.int32)


def difference(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().cpu().float(), expected.detach().cpu().float()
    return 0.0 if torch.equal(found, expected) else float((found - expected).abs().max() / expected.abs().max())


def gradients(model: Encoder, in_bf16: bool = False) -> tuple[Tensor, Tensor]:
    """The loss, and the gradients of all that is trained."""
    model.train().zero_grad()
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=in_bf16):
        loss = MaskedLmLoss(model, (LAYERS,), MASK_RATE, SEED)(MaskedLmBatch(blocks().long(), 0))
    loss.backward()
    found = [each.grad.to_dense().flatten() for each in model.parameters() if each.grad is not None]
    return loss, torch.cat(found)


def train(on: torch.device, model: Encoder, part: str = "all", in_bf16: bool = False, **more: Any) -> list[float]:
    """The losses of some updates by the library's loop; a stop asks this process for it after so many."""
    stop_after, checkpointer = more.get("stop_after"), more.get("checkpointer")
    model.to(on).train()
    net = model if part == "all" else mini_model(model, DEPTH)
    trained = freeze_except(model, (model if part == "all" else model.vocabulary).parameters())
    at = {"steps": STEPS, "learning_rate": 1e-3, "warmup_steps": 2, "weight_decay": 0.01, "clip_norm": 1.0}
    schedule = Schedule(**at, log_every_steps=1, tokens_per_step=8 * TOKENS, flops_per_step=1.0)
    loop = TrainingLoop(
        parameters=trained,
        stream=block_stream(blocks_in_memory(blocks()), 8, 4, MASK_RATE, SEED),
        autocast=partial(torch.autocast, on.type, dtype=torch.bfloat16) if in_bf16 else contextlib.nullcontext,
        checkpointer=checkpointer,
        state=(checkpointer and checkpointer.load_newest()) or TrainingState(),
    )
    losses = []
    with contextlib.suppress(Interruption):
        for point in loop.run(Plan(MaskedLmLoss(net, net.shape.mlm_heads, MASK_RATE, SEED), schedule)):
            losses.append(point.loss)
            if point.step == stop_after:
                os.kill(os.getpid(), signal.SIGTERM)
    return losses


@both_families
def test_logits_and_gradients_are_near_and_a_swap_there_and_back_is_exact(family: str, on: torch.device) -> None:
    ours = encoder(family)
    theirs = copy.deepcopy(ours).to(on)

    def logits(model: Encoder) -> Tensor:
        pieces = MaskingVocabulary.of(VOCABULARY, model.vocabulary.special, model.device)
        masked = mask_tokens(blocks().long().to(model.device), MASK_RATE, pieces, SEED, 0)
        with torch.inference_mode():
            return model.eval().masked_logits(masked.tokens_BT, masked.positions_M, [LAYERS])[LAYERS]

    expected, found = logits(ours), logits(theirs)
    assert difference(found, expected) <= FP32
    with torch.autocast(on.type, dtype=torch.bfloat16):
        assert difference(logits(theirs), expected) <= BF16
    swap(theirs, swap(theirs, Vocabulary(VOCABULARY // 2, WIDTH).to(on)))
    assert torch.equal(logits(theirs), found)
    for theirs_own, ours_own in zip(gradients(theirs), gradients(ours), strict=True):
        assert difference(theirs_own, ours_own) <= GRADIENT


@pytest.mark.parametrize("in_bf16", [False, True])
@both_families
def test_updates_lower_the_loss_as_on_a_cpu(family: str, in_bf16: bool, on: torch.device) -> None:
    expected = torch.tensor(train(CPU, encoder(family)))
    found = torch.tensor(train(on, encoder(family), in_bf16=in_bf16))
    assert difference(found - expected[0], expected - expected[0]) <= (BF16 if in_bf16 else TRAINED)


@both_families
def test_the_body_stays_frozen_bit_for_bit_while_embeddings_move(family: str, on: torch.device) -> None:
    model = encoder(family)
    body, table = copy.deepcopy(model.body_tensors()), model.vocabulary.table_VD.detach().clone()
    train(on, model, part="embeddings", in_bf16=True)
    assert all(torch.equal(tensor.cpu(), body[name]) for name, tensor in model.body_tensors().items())
    assert not torch.equal(model.vocabulary.table_VD.detach().cpu(), table)


def test_a_step_that_is_not_finite_changes_no_weight(on: torch.device) -> None:
    weight = nn.Parameter(torch.ones(3, 3, device=on))
    optimizer = Optimizer([weight], 0.01, 1.0)
    weight.grad = torch.full_like(weight, torch.inf)
    assert optimizer.clip(torch.ones((), device=on))
    optimizer.step(0.1)
    assert torch.equal(weight.detach().cpu(), torch.ones(3, 3))


@both_families
def test_a_training_that_was_stopped_goes_on_where_it_was(family: str, on: torch.device, tmp_path: Path) -> None:
    runs = [encoder(family, dropout=0.1) for _ in range(3)]
    for model in runs[:2]:
        train(on, model)
    first, second = (nn.utils.parameters_to_vector(model.parameters()) for model in runs[:2])
    managers = [CheckpointManager(tmp_path, {"check": family}, every_s=1e9) for _ in range(2)]
    assert len(train(on, encoder(family, dropout=0.1), checkpointer=managers[0], stop_after=2)) == 2
    managers[0].close(in_haste=True)
    assert len(train(on, runs[2], checkpointer=managers[1])) == STEPS - 2
    # A device that gives equal bits twice gives them here, too.
    resumed = nn.utils.parameters_to_vector(runs[2].parameters())
    assert difference(resumed, first) <= (0.0 if torch.equal(first, second) else TRAINED)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of torch, about what its own compiler does
@pytest.mark.parametrize("family", ["roberta", pytest.param("modern", marks=pytest.mark.nightly)])
def test_compiled_layers_and_loss_have_the_values_and_gradients_of_plain_ones(family: str, on: torch.device) -> None:
    plain, compiled = encoder(family).to(on), encoder(family).to(on)
    compiled.fused = True
    for found, expected in zip(gradients(compiled, in_bf16=True), gradients(plain), strict=True):
        assert 0 < difference(found, expected) <= BF16  # they are other kernels, in bfloat16
