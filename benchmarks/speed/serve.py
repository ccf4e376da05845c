"""`python -m benchmarks.speed.serve JSON`: one side of a comparison, which trains as it is told on standard input."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.cells import Cell, Shape
from benchmarks.speed.orders import Orders
from benchmarks.speed.settings import Settings
from benchmarks.speed.store import stored
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS

_STEPS_AN_EPOCH, _SEED = 16, 1


def main() -> None:
    """Train to the end of the orders."""
    asked = json.loads(sys.argv[1])
    cell, orders = Cell.of(asked["cell"]), Orders()
    torch.manual_seed(_SEED)
    blocks_NT = made_up_blocks(cell.shape)
    if asked["settings"] is None:
        from benchmarks.speed.own import serve as serve_own

        with tempfile.TemporaryDirectory() as folder:
            serve_own(cell, stored(blocks_NT, cell.shape.vocabulary, Path(folder) / "blocks"), orders)
        return
    from benchmarks.speed.peer import serve as serve_peer

    with tempfile.TemporaryDirectory() as folder:
        serve_peer(cell, Settings(**asked["settings"]), blocks_NT, orders, Path(folder))


def made_up_blocks(shape: Shape) -> Tensor:
    """Blocks (N, T) of ordinary pieces, as frequent as Zipf's law has them: gradients of rows collide as in text."""
    ordinary = torch.arange(len(DEFAULT_SPECIAL_IDS), shape.vocabulary)
    frequencies_V = 1.0 / torch.arange(1, len(ordinary) + 1)
    count = _STEPS_AN_EPOCH * shape.blocks * shape.tokens
    return ordinary[torch.multinomial(frequencies_V, count, replacement=True)].view(-1, shape.tokens)


if __name__ == "__main__":
    main()
