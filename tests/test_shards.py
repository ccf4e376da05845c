from pathlib import Path

import pytest
import torch

from lingraft.artifact import Artifact, Kind
from lingraft.blocks import split
from lingraft.errors import ArtifactError
from lingraft.shards import in_memory
from tests.workshop import Workshop, copied


def test_rows_come_in_the_order_asked_for() -> None:
    blocks_NT = torch.arange(30).view(10, 3)
    blocks = in_memory(blocks_NT.to(torch.int32))
    rows_B = torch.tensor([7, 0, 7, 9])
    assert torch.equal(blocks.take(rows_B), blocks_NT[rows_B])
    assert torch.equal(blocks.all(), blocks_NT)
    assert (len(blocks), blocks.block_tokens, blocks.window) == (10, 3, None)


@pytest.mark.parametrize("row", [-1, 10])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    blocks = in_memory(torch.zeros(10, 3, dtype=torch.int32))
    with pytest.raises(IndexError, match="of 10 blocks"):
        blocks.take(torch.tensor([0, row]))


def test_what_is_taken_from_disk_is_what_was_written(workshop: Workshop) -> None:
    artifact = Artifact.open(workshop.blocks["de"], Kind.BLOCKS)
    assert torch.equal(split(artifact, "train").all(), artifact.tensors("train")["tokens_NT"].long())


def test_a_flipped_bit_is_found_before_the_shard_is_used(workshop: Workshop, tmp_path: Path) -> None:
    folder = copied(workshop.blocks["de"], tmp_path / "damaged")
    path = folder / "train.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    blocks = split(Artifact.open(folder, Kind.BLOCKS), "train")
    with pytest.raises(ArtifactError, match=r"train\.safetensors was truncated or edited"):
        blocks.take(torch.tensor([0]))
