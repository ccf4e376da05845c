"""The least time that an update can take on a device: its products at the device's rate, then the optimizer's bytes.

Products and the optimizer follow one another, so their times add up. All else, such as LayerNorms, softmaxes and masks,
counts for nothing: no update is faster, and none gets quite there. `python -m benchmarks.gpu.roofline` prints limits of
adaptation on an H200.
"""

from typing import NamedTuple, assert_never

import torch
from torch import nn

from benchmarks.gpu.training import shape_of
from benchmarks.speed.cells import MASK_RATE, Cell
from lingraft.config.systems import TrainedPart
from lingraft.model.encoder import Encoder
from lingraft.model.flops import UpdateShape
from lingraft.tables import markdown_table

ADAMW_BYTES = 32
"""Bytes that AdamW moves for each trained parameter, all float32: gradient, weight and two moments are read, the last
three are written, and the gradient has been read once before for the norm that it is clipped by."""
_LAYERS, _BLOCKS, _TOKENS = (2, 4, 6, 12), (32, 64, 128, 256), 512


class Rates(NamedTuple):
    """Measured rates of a device."""

    flop_s: float
    """FLOP/s of large bf16 products."""
    bytes_s: float
    """Bytes a second that are read and written by a copy in its memory."""


H200 = Rates(790e12, 4.3e12)


def least_s(flops: float, trained: int, rates: Rates) -> float:
    """Return the least seconds of an update of so many FLOPs that trains so many parameters."""
    return flops / rates.flop_s + ADAMW_BYTES * trained / rates.bytes_s


def cell_least_s(cell: Cell, rates: Rates) -> float:
    """Return the least seconds of an update of a cell."""
    return least_s(cell.flops, _trained(cell), rates)


def adaptation_tokens_per_s(layers: int, blocks: int, rates: Rates) -> float:
    """Return the most tokens a second of an adaptation at base shape that updates after so many blocks of 512 tokens.

    Its FLOPs are those of the forward pass, of the gradients of activations, and of the head and the table.
    """
    shape = shape_of(_TOKENS)
    work = UpdateShape.of(
        shape.encoder, layers=layers, vocabulary=shape.vocabulary, batch_blocks=blocks, mask_rate=MASK_RATE
    )
    trained = shape.vocabulary * (shape.width + 1)
    return blocks * _TOKENS / least_s(work.adaptation_flops(), trained, rates)


def adaptation_table(rates: Rates = H200) -> str:
    """Return the limits in millions of tokens a second as a table in Markdown."""
    rows = [
        [str(layers), *(f"{adaptation_tokens_per_s(layers, blocks, rates) / 1e6:.2f}" for blocks in _BLOCKS)]
        for layers in _LAYERS
    ]
    return markdown_table(["layers", *(f"{blocks} blocks" for blocks in _BLOCKS)], rows, left=0)


def _trained(cell: Cell) -> int:
    """Count the parameters that a cell trains, a task's own head left out."""
    step = cell.training.step
    with torch.device("meta"):
        encoder = Encoder(cell.shape.encoder.cut(step.layers, (step.layers,)), cell.shape.vocabulary)
    vocabulary, layers = _count(encoder.vocabulary), [*encoder.layers]
    match step.trained:
        case TrainedPart.EVERYTHING:
            return _count(encoder)
        case TrainedPart.EMBEDDINGS:
            return vocabulary
        case TrainedPart.FRESH_LAYERS:
            return sum(map(_count, layers[len(layers) - step.fresh_layers :]))
        case TrainedPart.BODY:
            return _count(encoder) - vocabulary - _count(encoder.heads)
        case unknown:
            assert_never(unknown)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


if __name__ == "__main__":
    print(adaptation_table())
