"""Sizes of a recipe that fit an amount of text and a machine: encoder, vocabulary, updates, blocks, batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lingraft.model.flops import UpdateShape
from lingraft.new_recipe.machine import Machine
from lingraft.preflight.sizes import supported_vocabulary

_CHARACTERS_A_TOKEN = 3.5
_MOST_EPOCHS = 40
_TOKENS_A_PARAMETER = 6
"""Tokens of pretraining that a larger shape must be given before it is chosen. The demo's smallest shape has 3."""
_PRETRAINING_SHARE = 0.5
"""Share of the time; the languages share most of the rest, finetuning and judging get what is left."""
_ADAPTATION_SHARE = 0.35
_FEWEST_STEPS = 100
_FEWEST_PIECES = 200
_PIECES_A_CHARACTER = 1.5
"""Fewest pieces for each character, so that not all pieces are single characters."""


@dataclass(frozen=True)
class EncoderPreset:
    """An encoder, and settings that suit one of its width."""

    width: int
    layers: int
    attention_heads: int
    mlm_heads: tuple[int, ...]
    block_tokens: int
    vocabulary: int
    """Pieces at most."""
    pretraining_rate: float
    adaptation_rate: float
    """Learning rate between what suits rows that start aligned, half of it, and fitted ones, twice as much."""
    finetuning_rate: float
    mask_rate: float

    @property
    def body_parameters(self) -> int:
        """Weights of the layers."""
        return 12 * self.layers * self.width**2


ENCODER_PRESETS = (
    EncoderPreset(128, 6, 2, (2, 4, 6), 64, 8_000, 1.5e-3, 2e-3, 5e-4, 0.3),
    EncoderPreset(256, 8, 4, (2, 4, 8), 128, 16_000, 1e-3, 1e-3, 2e-4, 0.3),
    EncoderPreset(512, 8, 8, (4, 8), 128, 32_000, 7e-4, 1e-3, 1e-4, 0.15),
    EncoderPreset(768, 12, 12, (4, 12), 512, 50_000, 4e-4, 5e-4, 2e-5, 0.15),
)
"""Presets from small to large; the first is the demo's, the last RoBERTa-base's."""


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
    """Times that the source's text is seen."""
    hours: float
    """Hours that pretraining and adaptation take, about."""

    @property
    def depth(self) -> int:
        """Layers of the mini-model."""
        return self.shape.mlm_heads[0]


def fit_sizes(amount: TextAmount, machine: Machine, hours: float) -> FittedSizes:
    """Choose sizes for an amount of text, a machine and a time.

    Args:
        amount: of text.
        machine: that trains.
        hours: that all of it may take, about.
    """
    budget = hours * 3600 * machine.flops_per_s
    fitting = [shape for shape in ENCODER_PRESETS if _is_affordable(shape, amount, machine, budget)]
    shape = (fitting or ENCODER_PRESETS[:1])[-1]
    supported = supported_vocabulary(min(amount.characters.values()) / 2)
    vocabulary = _rounded(max(min(supported, shape.vocabulary), _PIECES_A_CHARACTER * amount.alphabet, _FEWEST_PIECES))
    batch, micro = _batch(shape, machine)
    tokens = batch * shape.block_tokens
    pretraining = _work(shape, vocabulary, batch).pretraining_flops()
    adaptation = _mini_work(shape, vocabulary, batch).adaptation_flops()
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
    tokens = fitted.pretraining_steps * fitted.batch_blocks * block_tokens
    share = block_tokens / fitted.block_tokens
    return replace(
        fitted,
        block_tokens=block_tokens,
        pretraining_epochs=_epochs(tokens, amount),
        hours=fitted.hours * share,
    )


def _epochs(tokens: int, amount: TextAmount) -> float:
    return tokens * _CHARACTERS_A_TOKEN / amount.characters[amount.source]


def _is_affordable(shape: EncoderPreset, amount: TextAmount, machine: Machine, budget: float) -> bool:
    """Whether text, time and memory suffice for a shape."""
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
    """Blocks in one update, and blocks computed at once where memory does not hold them all."""
    if machine.gpu is None:
        return 32, None
    batch = max(32, 16_384 // shape.block_tokens)
    # About 40 numbers of the width for each token and layer.
    held = int(machine.gpu_memory_bytes / 2 / (40 * 4 * shape.block_tokens * shape.width * shape.layers))
    at_once = min(batch, 1 << max(held, 1).bit_length() - 1)
    return batch, None if at_once == batch else at_once


def _work(shape: EncoderPreset, vocabulary: int, batch: int) -> UpdateShape:
    heads = len(shape.mlm_heads)
    return UpdateShape(shape.layers, shape.width, vocabulary, shape.block_tokens, batch, shape.mask_rate, heads)


def _mini_work(shape: EncoderPreset, vocabulary: int, batch: int) -> UpdateShape:
    return UpdateShape(shape.mlm_heads[0], shape.width, vocabulary, shape.block_tokens, batch, shape.mask_rate)


def _steps(affordable: float, characters: float, tokens: int) -> int:
    """Updates that time and text allow; the text is not seen more often than helps."""
    useful = _MOST_EPOCHS * characters / _CHARACTERS_A_TOKEN / tokens
    return _rounded(max(min(affordable, useful), _FEWEST_STEPS))


def _rounded(value: float) -> int:
    """A number of two digits that count, not larger."""
    unit = 10 ** max(int(math.log10(value)) - 1, 0)
    return int(value // unit * unit)
