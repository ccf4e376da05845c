"""Sizes of a recipe that fit an amount of text and a machine: encoder, vocabulary, updates, blocks, batches."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.pool import available_cores
from lingraft.model.flops import UpdateShape
from lingraft.preflight.sizes import supported_vocabulary
from lingraft.reports.cost.accelerators import ASSUMED_UTILISATION, PEAKS_TFLOPS

_CHARACTERS_A_TOKEN = 3.5
_MOST_EPOCHS = 40
_TOKENS_A_PARAMETER = 10
"""Tokens of pretraining per parameter that a larger shape needs to be chosen."""
_PRETRAINING_SHARE = 0.5
"""Share of the time; the languages share most of the rest, finetuning and judging get what is left."""
_ADAPTATION_SHARE = 0.35
_FEWEST_STEPS = 100
_FEWEST_PIECES = 200
_PIECES_A_CHARACTER = 1.5
"""Fewest pieces for each character, so that not all pieces are single characters."""
_FLOPS_A_CORE = 60e9
"""Rate of layers on two server cores, between those of fp32 and bf16, by the formulas of `cost`."""
_UNKNOWN_GPU_TFLOPS = 60.0
_NARROW = 0.25
"""Narrow models reach less of a GPU than those that the utilisation of `cost` is assumed for."""
GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """Machine that trains."""

    cores: int
    memory_bytes: int
    gpu: str | None = None
    """Name of the GPU, if there is one."""
    gpu_memory_bytes: int = 0

    @classmethod
    def here(cls) -> Self:
        """Return the machine that this process runs on."""
        import torch

        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if not torch.cuda.is_available():
            return cls(available_cores(), memory)
        found = torch.cuda.get_device_properties(0)
        return cls(available_cores(), memory, found.name, found.total_memory)

    @property
    def flops_per_s(self) -> float:
        """Approximate FLOPs per second of training, by the formulas of `cost`: an assumption, not a measurement."""
        if self.gpu is None:
            return self.cores * _FLOPS_A_CORE
        peaks = [peak for name, peak in PEAKS_TFLOPS.items() if name in self.gpu]
        return (peaks or [_UNKNOWN_GPU_TFLOPS])[0] * 1e12 * ASSUMED_UTILISATION * _NARROW

    def __str__(self) -> str:
        gpu = f"{self.gpu} with {self.gpu_memory_bytes / GIB:.0f} GiB" if self.gpu else "no GPU"
        return f"{self.cores} CPU cores, {self.memory_bytes / GIB:.0f} GiB of memory, {gpu}"


@dataclass(frozen=True)
class EncoderPreset:
    """A modern encoder, and settings that suit one of its width."""

    width: int
    layers: int
    attention_heads: int
    mlm_heads: tuple[int, ...]
    """The first, a mini-model's depth, and the last layer see whole blocks: every third layer from the first does; in
    short blocks, all do."""
    block_tokens: int
    vocabulary: int
    """Largest number of pieces."""
    pretraining_rate: float
    adaptation_rate: float
    """Learning rate between what suits rows that start aligned, half of it, and fitted ones, twice as much."""
    finetuning_rate: float

    @property
    def feedforward(self) -> int:
        """Width of the gated feed-forward layers, as ModernBERT-base has it."""
        return 3 * self.width // 2

    @property
    def encoder(self) -> EncoderShape:
        """The encoder."""
        return EncoderShape(
            family=Family.model_validate(FAMILY),
            width=self.width,
            layers=self.layers,
            attention_heads=self.attention_heads,
            feedforward=self.feedforward,
            mlm_heads=self.mlm_heads,
            block_tokens=self.block_tokens,
        )

    @property
    def body_parameters(self) -> int:
        """Weights of the layers."""
        return self.layers * self.width * (4 * self.width + 3 * self.feedforward)


FAMILY = "modern"
MASK_RATE = 0.3
ENCODER_PRESETS = (
    EncoderPreset(
        width=128,
        layers=4,
        attention_heads=2,
        mlm_heads=(2, 4),
        block_tokens=64,
        vocabulary=8_000,
        pretraining_rate=6e-3,
        adaptation_rate=2e-3,
        finetuning_rate=2e-3,
    ),
    EncoderPreset(
        width=256,
        layers=7,
        attention_heads=4,
        mlm_heads=(4, 7),
        block_tokens=128,
        vocabulary=16_000,
        pretraining_rate=6e-3,
        adaptation_rate=1e-3,
        finetuning_rate=5e-4,
    ),
    EncoderPreset(
        width=512,
        layers=10,
        attention_heads=8,
        mlm_heads=(4, 10),
        block_tokens=128,
        vocabulary=32_000,
        pretraining_rate=4e-3,
        adaptation_rate=1e-3,
        finetuning_rate=1e-4,
    ),
    EncoderPreset(
        width=768,
        layers=22,
        attention_heads=12,
        mlm_heads=(7, 22),
        block_tokens=512,
        vocabulary=50_000,
        pretraining_rate=2e-3,
        adaptation_rate=5e-4,
        finetuning_rate=2e-5,
    ),
)
"""Presets from small to large; the first is of the demo's encoder, the last ModernBERT-base. Pretraining is by Muon."""


@dataclass(frozen=True)
class TextAmount:
    """Amount of text to train on."""

    characters: Mapping[str, float]
    """Characters of the training text, by language."""
    source: str
    """The source language."""
    alphabet: int
    """Characters of the language that has the most of them."""

    @property
    def targets(self) -> dict[str, float]:
        """Characters of the languages that are added."""
        return {language: count for language, count in self.characters.items() if language != self.source}


@dataclass(frozen=True)
class FittedSizes:
    """Sizes of a recipe."""

    shape: EncoderPreset
    block_tokens: int
    vocabulary: int
    batch_blocks: int
    micro_batch_blocks: int | None
    pretraining_steps: int
    adaptation_steps: int
    pretraining_epochs: float
    """Epochs over the source's text."""
    hours: float
    """Hours that pretraining and adaptation take, about."""

    @property
    def depth(self) -> int:
        """Layers of the mini-model."""
        return self.shape.mlm_heads[0]


def fit_sizes(amount: TextAmount, machine: Machine, hours: float) -> FittedSizes:
    """Choose sizes for an amount of text, a machine and the hours that training may take, about."""
    budget = hours * 3600 * machine.flops_per_s
    fitting = [shape for shape in ENCODER_PRESETS if _is_affordable(shape, amount, machine, budget)]
    shape = (fitting or ENCODER_PRESETS[:1])[-1]
    supported = supported_vocabulary(min(amount.characters.values()) / 2)
    vocabulary = _rounded(max(min(supported, shape.vocabulary), _PIECES_A_CHARACTER * amount.alphabet, _FEWEST_PIECES))
    batch, micro = _batch(shape, machine)
    tokens = batch * shape.block_tokens
    pretraining = _work(shape, vocabulary, batch).pretraining_flops()
    adaptation = _work(shape, vocabulary, batch, mini=True).adaptation_flops()
    targets = amount.targets
    steps = _steps(_PRETRAINING_SHARE * budget / pretraining, amount.characters[amount.source], tokens)
    each = _ADAPTATION_SHARE * budget / len(targets) / adaptation
    adapted = min(_steps(each, min(targets.values()), tokens), steps)
    return FittedSizes(
        shape=shape,
        block_tokens=shape.block_tokens,
        vocabulary=vocabulary,
        batch_blocks=batch,
        micro_batch_blocks=micro,
        pretraining_steps=steps,
        adaptation_steps=adapted,
        pretraining_epochs=_epochs(steps * tokens, amount),
        hours=(steps * pretraining + len(targets) * adapted * adaptation) / machine.flops_per_s / 3600,
    )


def with_blocks(fitted: FittedSizes, block_tokens: int, amount: TextAmount) -> FittedSizes:
    """Return the sizes with blocks of another length."""
    return replace(
        fitted,
        block_tokens=block_tokens,
        pretraining_epochs=_epochs(fitted.pretraining_steps * fitted.batch_blocks * block_tokens, amount),
        hours=fitted.hours * block_tokens / fitted.block_tokens,
    )


def _epochs(tokens: int, amount: TextAmount) -> float:
    return tokens * _CHARACTERS_A_TOKEN / amount.characters[amount.source]


def _is_affordable(shape: EncoderPreset, amount: TextAmount, machine: Machine, budget: float) -> bool:
    tokens = _TOKENS_A_PARAMETER * shape.body_parameters
    batch, _ = _batch(shape, machine)
    update = _work(shape, shape.vocabulary, batch).pretraining_flops()
    affordable = _PRETRAINING_SHARE * budget / update * batch * shape.block_tokens
    there = _MOST_EPOCHS * amount.characters[amount.source] / _CHARACTERS_A_TOKEN
    # Weights, gradients and both of AdamW's moments in fp32, and as much again for activations.
    weights = shape.body_parameters + shape.vocabulary * shape.width
    memory = machine.gpu_memory_bytes or machine.memory_bytes
    return tokens <= min(affordable, there) and 32 * weights <= memory


def _batch(shape: EncoderPreset, machine: Machine) -> tuple[int, int | None]:
    """Return the blocks in one update, and the blocks computed at once where memory does not hold them all."""
    if machine.gpu is None:
        return 32, None
    batch = max(32, 16_384 // shape.block_tokens)
    # Twice the 40 bytes by token, column and layer that the base shape took in bf16 without dropout on an H200
    # (docs/benchmarks/gpu.md), in half of the memory.
    held = int(machine.gpu_memory_bytes / 2 / (80 * shape.block_tokens * shape.width * shape.layers))
    at_once = min(batch, 1 << max(held, 1).bit_length() - 1)
    return batch, None if at_once == batch else at_once


def _work(shape: EncoderPreset, vocabulary: int, batch: int, mini: bool = False) -> UpdateShape:
    """Return an update of pretraining, or of a mini-model of the first depth."""
    return UpdateShape.of(
        shape.encoder,
        layers=shape.mlm_heads[0] if mini else shape.layers,
        vocabulary=vocabulary,
        batch_blocks=batch,
        mask_rate=MASK_RATE,
        heads=1 if mini else len(shape.mlm_heads),
    )


def _steps(affordable: float, characters: float, tokens: int) -> int:
    """Return the updates that time and text allow; the text is not seen more often than helps."""
    useful = _MOST_EPOCHS * characters / _CHARACTERS_A_TOKEN / tokens
    return _rounded(max(min(affordable, useful), _FEWEST_STEPS))


def _rounded(value: float) -> int:
    """Round down to two significant digits."""
    unit = 10 ** max(int(math.log10(value)) - 1, 0)
    return int(value // unit * unit)
