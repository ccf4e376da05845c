"""Cost of a checkpoint to a training: how long it stands still, how long the writing takes, and what that slows down.

    python -m benchmarks.checkpoint_stall [--width 768] [--layers 12] [--vocabulary 50000] [--tokens 4096]
        [--steps 12] [--folder DIR] [--out FILE]

Pretrains a model of the shape given on random pieces, without checkpoints and with one after the other, and prints
medians. The folder decides the disk; files are hashed and synced as in any training.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingraft.artifacts.files import write_json
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder
from lingraft.training.batches import masked_lm_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.precision import device
from lingraft.training.run import masked_lm_phase, training_run
from lingraft.training.training_state import TrainingState

BLOCK_TOKENS = 128
_WARM = 2
"""Steps that do not count: memory is taken, kernels are chosen."""


class TimedKeeper(CheckpointManager):
    """Notes how long it writes, and how much."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"stage": "benchmark"}, every_s=1e-9)
        self.wrote_s: list[float] = []
        self.bytes = 0

    def _write(self, step: int, last: bool, tensors: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        # The last one may hold less: nothing is trained after it.
        self.bytes = max(self.bytes, sum(tensor.nbytes for tensor in tensors.values()))
        began = time.perf_counter()
        is_written = super()._write(step, last, tensors, facts)
        self.wrote_s.append(time.perf_counter() - began)
        return is_written


def recipe_of(width: int, layers: int, vocabulary: int, tokens: int, steps: int) -> Recipe:
    """Pretraining of a shape, so many tokens a step."""
    training = {"batch_blocks": tokens // BLOCK_TOKENS, "learning_rate": 1e-4, "log_every_steps": 1}
    return Recipe.parse(
        {
            "name": "stall",
            "source": "en",
            "targets": ["de"],
            "precision": "fp32",
            "text": {"kind": "folder", "path": "none"},
            "tokenizer": {"vocabulary": vocabulary},
            "encoder": {
                "width": width,
                "layers": layers,
                "attention_heads": width // 64 or 1,
                "mlm_heads": [layers],
                "block_tokens": BLOCK_TOKENS,
            },
            "pretraining": training | {"steps": steps + _WARM},
            "adaptation": training | {"steps": 1, "depth": layers},
        }
    )


def step_times_s(recipe: Recipe, checkpointer: CheckpointManager | None) -> list[float]:
    """Seconds of every step but the first ones."""
    size = recipe.pretraining.batch_blocks * 4, BLOCK_TOKENS
    draw = torch.Generator().manual_seed(1)
    blocks_NT = torch.randint(len(DEFAULT_SPECIAL_IDS), recipe.tokenizer.vocabulary, size, generator=draw)
    encoder = Encoder(recipe.primary_shape, recipe.tokenizer.vocabulary)
    step = recipe.steps_over(recipe.adaptation.depth)[Stage.PRETRAIN]
    phase = masked_lm_phase(recipe, step, encoder, recipe.pretraining)
    blocks = blocks_in_memory(blocks_NT)
    run = training_run(
        recipe, [phase], [*encoder.parameters()], masked_lm_stream(blocks, recipe.pretraining), checkpointer
    )
    elapsed_s = [point.elapsed_s for point in run.points]
    if checkpointer:
        checkpointer.wait()
    return [after - before for before, after in itertools.pairwise(elapsed_s)][_WARM - 1 :]


def measured(recipe: Recipe, folder: Path) -> dict[str, float]:
    """Medians in seconds, the size of a checkpoint, and what share of a training it costs at the default pace."""
    checkpointer = TimedKeeper(folder)
    alone = statistics.median(step_times_s(recipe, None))
    beside_s = step_times_s(recipe, checkpointer)
    stalled, wrote = statistics.median(checkpointer.stalled_s), statistics.median(checkpointer.wrote_s)
    lost = (sum(beside_s) - alone * len(beside_s)) / len(checkpointer.wrote_s)
    return {
        "megabytes": checkpointer.bytes / 1e6,
        "checkpoints": len(checkpointer.wrote_s),
        "step_s": alone,
        "stall_s": stalled,
        "write_s": wrote,
        "stall_in_steps": stalled / alone,
        "step_while_writing_s": statistics.median(beside_s),
        "lost_a_checkpoint_s": lost,
        "share_at_one_in_600_s": lost / 600,
    }


def restored_s(folder: Path) -> float:
    """Seconds that it takes to find the newest checkpoint, check its hashes and read it."""
    began = time.perf_counter()
    found: TrainingState | None = TimedKeeper(folder).load_newest()
    assert found is not None, "a checkpoint has just been written"
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"width": 768, "layers": 12, "vocabulary": 50_000, "tokens": 4096, "steps": 12}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="Where checkpoints go; a temporary folder if absent.")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers.")
    given = parser.parse_args()
    recipe = recipe_of(given.width, given.layers, given.vocabulary, given.tokens, given.steps)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = measured(recipe, Path(folder))
        found["read_s"] = restored_s(Path(folder))
    print(json.dumps({"device": str(device()), "threads": torch.get_num_threads(), **found}, indent=2))
    if given.out:
        write_json(given.out, found)


if __name__ == "__main__":
    main()
