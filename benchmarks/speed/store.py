"""Blocks on disk, as a training finds them: shards that the library wrote, verified and mapped as they are needed."""

from pathlib import Path

from torch import Tensor

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.token_ids import ids_dtype
from lingraft.data import blocks
from lingraft.data.shards import WINDOW_SHARDS, Blocks, BlockWriter

_SHARDS = 2 * WINDOW_SHARDS
"""Two windows, so that shards come and go while a training reads."""


def stored(blocks_NT: Tensor, vocabulary: int, folder: Path) -> Blocks:
    """Write blocks (N, T) as an artifact, and open its train split.

    Raises:
        ArtifactError: it cannot be written.
    """
    count, length = blocks_NT.shape
    shard_bytes = -(-count // _SHARDS) * length * ids_dtype(vocabulary).itemsize
    with artifact.create(folder, Kind.BLOCKS) as draft:
        writer = BlockWriter(draft, "train", length, vocabulary, shard_bytes)
        writer.add(blocks_NT.numpy())
        writer.close()
        draft.facts = {
            "details": {"block_tokens": length, "vocabulary": vocabulary, "window_shards": WINDOW_SHARDS},
        }
    return blocks.open_split(Artifact.open(folder, Kind.BLOCKS), "train")
