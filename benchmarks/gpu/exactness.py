"""Whether a device computes what a CPU does: functions that take a device, and return what they found.

Every finding has a difference and a bound that it must keep; a bound of 0 asks for equal bits. Differences are relative
to the largest value that the CPU has. A fast test has the CPU in the device's place.

Legend: B batch, T tokens, V vocabulary, D width, M masked tokens.
"""

import copy
import os
import signal
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.gpu.parts import Given
from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.masking import MaskingVocabulary, mask_tokens
from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder, Vocabulary, freeze_except, mini_model
from lingraft.model.swap import swap
from lingraft.signals import Interruption
from lingraft.training.batches import MaskedLmBatch, block_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.loop import Phase, TrainingLoop
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.optimizer import Optimizer
from lingraft.training.precision import NumberFormat, device
from lingraft.training.schedule import Schedule
from lingraft.training.training_state import TrainingState

FAMILIES = ("roberta", "modern")
FP32, GRADIENT, TRAINED, BF16 = 1e-4, 1e-3, 1e-2, 6e-2
"""Bounds: of logits, of gradients, of losses of several updates, and of all that is computed in bf16."""
_DEPTH, _BLOCKS, _STEPS, _STOP_AFTER, _MASK_RATE, _SEED = 2, 16, 6, 2, 0.15, 1

CPU = torch.device("cpu")
Trains = Literal["everything", "embeddings"]


class Size(NamedTuple):
    """Size of what is compared."""

    width: int
    layers: int
    vocabulary: int
    tokens: int

    def encoder(self, family: str, dropout: float = 0.0) -> Encoder:
        """Return an encoder of random weights, the same whenever it is called."""
        shape = EncoderShape(
            width=self.width,
            layers=self.layers,
            attention_heads=max(2, self.width // 64),
            mlm_heads=(_DEPTH, self.layers),
            block_tokens=self.tokens,
            dropout=dropout,
            family=Family.model_validate(family),
        )
        torch.manual_seed(_SEED)
        return Encoder(shape, self.vocabulary)

    def blocks(self) -> Tensor:
        """Blocks (N, T) of random ordinary pieces."""
        generator = torch.Generator().manual_seed(_SEED)
        return torch.randint(
            len(DEFAULT_SPECIAL_IDS), self.vocabulary, (_BLOCKS, self.tokens), generator=generator, dtype=torch.int32
        )


TINY, WHOLE = Size(32, 3, 300, 16), Size(768, 6, 20_000, 256)


class Finding(NamedTuple):
    """A comparison."""

    name: str
    difference: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the difference keeps the bound; one that is not a number does not."""
        return self.difference <= self.bound

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return self._asdict() | {"holds": self.holds}


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest value expected; 0 for equal bits."""
    found, expected = found.detach().cpu().float(), expected.detach().cpu().float()
    if torch.equal(found, expected):
        return 0.0
    return float((found - expected).abs().max() / expected.abs().max())


def forward(on: torch.device, size: Size) -> list[Finding]:
    """Masks, logits in both number formats, loss and gradient, and the swap."""
    return [finding for family in FAMILIES for finding in _forward(on, size, family)]


def _forward(on: torch.device, size: Size, family: str) -> Iterable[Finding]:
    ours = size.encoder(family)
    theirs = copy.deepcopy(ours).to(on)
    tokens_BT = size.blocks().long()
    masked = {
        each.device: mask_tokens(tokens_BT.to(each.device), _MASK_RATE, pieces_of(each), _SEED, 0)
        for each in (ours, theirs)
    }
    theirs_masked = masked[theirs.device]
    yield Finding(f"{family}: masks", difference(theirs_masked.tokens_BT, masked[ours.device].tokens_BT), 0.0)

    def logits(encoder: Encoder) -> Tensor:
        given = masked[encoder.device]
        with torch.inference_mode():
            return encoder.eval().masked_logits(given.tokens_BT, given.positions_M, [size.layers])[size.layers]

    expected_MV, found_MV = logits(ours), logits(theirs)
    yield Finding(f"{family}: logits in fp32", difference(found_MV, expected_MV), FP32)
    with torch.autocast(on.type, dtype=torch.bfloat16):
        yield Finding(f"{family}: logits in bf16", difference(logits(theirs), expected_MV), BF16)
    other = Vocabulary(size.vocabulary // 2, size.width).to(on)
    own = swap(theirs, other)
    swap(theirs, own)
    yield Finding(f"{family}: logits after a swap there and back", difference(logits(theirs), found_MV), 0.0)

    def gradient(encoder: Encoder) -> tuple[Tensor, Tensor]:
        loss = MaskedLmLoss(encoder.train(), (size.layers,), _MASK_RATE, _SEED)(MaskedLmBatch(tokens_BT, 0))
        loss.backward()
        assert encoder.vocabulary.table_VD.grad is not None
        return loss, encoder.vocabulary.table_VD.grad.to_dense()

    for name, found, expected in zip(("loss", "gradient of the table"), gradient(theirs), gradient(ours), strict=True):
        yield Finding(f"{family}: {name}", difference(found, expected), GRADIENT)


def pieces_of(encoder: Encoder) -> MaskingVocabulary:
    """Return what is masked by what, on the encoder's device."""
    return MaskingVocabulary.of(len(encoder.vocabulary), encoder.vocabulary.special, encoder.device)


class Trained(NamedTuple):
    """A training that has come to its end, or has been stopped."""

    losses: list[float]
    """The loss of each update."""
    encoder: Encoder

    @property
    def weights(self) -> Tensor:
        """All weights in one row."""
        return nn.utils.parameters_to_vector(self.encoder.parameters()).detach().cpu()


def train(
    on: torch.device,
    encoder: Encoder,
    blocks_NT: Tensor,
    trains: Trains = "everything",
    number_format: NumberFormat = "fp32",
    muon: bool = False,
    checkpointer: CheckpointManager | None = None,
    stop_after: int | None = None,
) -> Trained:
    """Take some updates by the library's loop, in two micro-batches each.

    Args:
        on: device.
        encoder: encoder that is trained, in place.
        blocks_NT: text.
        trains: everything over all layers, or embeddings alone over the bottom ones.
        number_format: of the forward passes.
        muon: whether Muon updates matrices.
        checkpointer: where a training that is stopped is to go on from.
        stop_after: update after which this process asks itself to stop.
    """
    encoder.to(on).train()
    model = encoder if trains == "everything" else mini_model(encoder, _DEPTH)
    part = encoder if trains == "everything" else encoder.vocabulary
    schedule = Schedule(
        steps=_STEPS,
        learning_rate=1e-3,
        warmup_steps=2,
        weight_decay=0.01,
        clip_norm=1.0,
        log_every_steps=1,
        tokens_per_step=8 * blocks_NT.shape[1],
        flops_per_step=1.0,
    )
    loop = TrainingLoop(
        parameters=freeze_except(encoder, part.parameters()),
        stream=block_stream(blocks_in_memory(blocks_NT), 8, 4, _MASK_RATE, _SEED),
        autocast=nullcontext if number_format == "fp32" else partial(torch.autocast, on.type, dtype=torch.bfloat16),
        checkpointer=checkpointer,
        state=(checkpointer and checkpointer.load_newest()) or TrainingState(),
        muon_matrices=encoder.inner_matrices() if muon else (),
    )
    losses = []
    try:
        for point in loop.run([Phase(MaskedLmLoss(model, model.shape.mlm_heads, _MASK_RATE, _SEED), schedule)]):
            losses.append(point.loss)
            if point.step == stop_after:
                os.kill(os.getpid(), signal.SIGTERM)
    except Interruption:
        assert stop_after
    return Trained(losses, encoder)


def fused(on: torch.device, size: Size) -> list[Finding]:
    """Loss and gradients of layers and loss that Inductor compiles, against those of torch's own operations."""
    cases: tuple[tuple[str, NumberFormat], ...] = (("roberta", "fp32"), ("roberta", "bf16"), ("modern", "bf16"))
    return [finding for family, number_format in cases for finding in compare_fused(on, size, family, number_format)]


def compare_fused(on: torch.device, size: Size, family: str, number_format: NumberFormat) -> Iterable[Finding]:
    """Yield the findings of one family in one number format; torch's own operations are in fp32."""
    encoder = size.encoder(family).to(on).train()

    def gradients(is_fused: bool, in_bf16: bool) -> tuple[Tensor, Tensor]:
        encoder.fused = is_fused
        encoder.zero_grad()
        with torch.autocast(on.type, dtype=torch.bfloat16, enabled=in_bf16):
            loss = MaskedLmLoss(encoder, (size.layers,), _MASK_RATE, _SEED)(MaskedLmBatch(size.blocks().long(), 0))
        loss.backward()
        found = [each.grad.to_dense().flatten() for each in encoder.parameters() if each.grad is not None]
        return loss.detach(), torch.cat(found)

    pairs = zip(gradients(True, number_format == "bf16"), gradients(False, False), strict=True)
    bounds = (FP32, GRADIENT) if number_format == "fp32" else (BF16, BF16)
    for name, bound, (found, expected) in zip(("loss", "gradients"), bounds, pairs, strict=True):
        yield Finding(f"{family}: {name}, compiled, in {number_format}", difference(found, expected), bound)


def updates(on: torch.device, size: Size) -> list[Finding]:
    """Losses of some updates against the CPU's, a frozen body, and a step that is not finite."""
    found = [finding for family in FAMILIES for finding in _updates(on, size, family)]
    weight = nn.Parameter(torch.ones(3, 3, device=on))
    optimizer = Optimizer([weight], 0.01, 1.0)
    weight.grad = torch.full_like(weight, torch.inf)
    was_bad = bool(optimizer.clip(torch.ones((), device=on)))
    optimizer.step(0.1)
    changed = difference(weight, torch.ones(3, 3)) if was_bad else torch.inf
    return [*found, Finding("weights after a step that is not finite", changed, 0.0)]


def _updates(on: torch.device, size: Size, family: str) -> Iterable[Finding]:
    for muon, by in ((False, "AdamW"), (True, "Muon")):
        expected = torch.tensor(train(CPU, size.encoder(family), size.blocks(), muon=muon).losses)
        untrained = expected[0]
        formats: tuple[tuple[NumberFormat, float], ...] = (("fp32", TRAINED), ("bf16", BF16))
        for number_format, bound in formats:
            ran = train(on, size.encoder(family), size.blocks(), number_format=number_format, muon=muon)
            name = f"{family}: fall of the loss in {_STEPS} updates by {by} in {number_format}"
            yield Finding(name, difference(torch.tensor(ran.losses) - untrained, expected - untrained), bound)
    encoder = size.encoder(family)
    body = {name: tensor.clone() for name, tensor in encoder.body_tensors().items()}
    table_VD = encoder.vocabulary.table_VD.detach().clone()
    ran = train(on, encoder, size.blocks(), trains="embeddings", number_format="bf16")
    moved = max(difference(tensor, body[name]) for name, tensor in ran.encoder.body_tensors().items())
    yield Finding(f"{family}: the frozen body after {_STEPS} updates of the embeddings", moved, 0.0)
    stayed = float(torch.equal(ran.encoder.vocabulary.table_VD.detach().cpu(), table_VD))
    yield Finding(f"{family}: embeddings that have not moved", stayed, 0.0)


def resume(on: torch.device, size: Size) -> list[Finding]:
    """A training with dropout that is stopped and goes on, against one that is not stopped.

    Where the device gives equal bits twice, it must give them here; else the two may differ as losses do.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return [finding for family in FAMILIES for finding in _resume(on, size, family)]
    finally:
        torch.use_deterministic_algorithms(False)


def _resume(on: torch.device, size: Size, family: str) -> Iterable[Finding]:
    def whole(**given: Any) -> Trained:
        return train(on, size.encoder(family, dropout=0.1), size.blocks(), **given)

    first, second = whole(), whole()
    repeated = difference(second.weights, first.weights)
    yield Finding(f"{family}: weights of the same training twice", repeated, TRAINED)
    with tempfile.TemporaryDirectory() as folder:
        managers = [CheckpointManager(Path(folder), {"check": family}, every_s=1e9) for _ in range(2)]
        stopped = whole(checkpointer=managers[0], stop_after=_STOP_AFTER)
        managers[0].close(in_haste=True)
        resumed = whole(checkpointer=managers[1])
    taken = len(stopped.losses), len(resumed.losses)
    complete = taken == (_STOP_AFTER, _STEPS - _STOP_AFTER)
    off = difference(resumed.weights, first.weights) if complete else torch.inf
    yield Finding(f"{family}: weights of a training that was stopped and went on", off, TRAINED if repeated else 0.0)


UNCOMPILED = ("forward", "updates", "resume")
"""Checks of seconds on a CPU, for which a compiler takes minutes to compile the others."""
CHECKS: dict[str, Callable[[torch.device, Size], list[Finding]]] = {
    "forward": forward,
    "updates": updates,
    "resume": resume,
    "fused": fused,
}


def measured(name: str, given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run one of the checks on this process's device."""
    found = CHECKS[name](device(), TINY if given.tiny else WHOLE)
    return {"findings": [finding.plain() for finding in found]}
