from pathlib import Path

import numpy as np
import pytest
import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.token_ids import ids_dtype
from lingraft.data.blocks import open_split
from lingraft.data.shards import BlockWriter, blocks_in_memory
from lingraft.errors import ArtifactError
from tests.full_disk import full_disk

T = 4
"""Tokens of a block."""


def packed(folder: Path, count: int, shard_blocks: int, vocabulary: int = 1000) -> Artifact:
    """Blocks of a training split: their first ids are their row numbers, up to the vocabulary."""
    with artifact.create(folder, Kind.BLOCKS) as draft:
        shard_bytes = shard_blocks * T * ids_dtype(vocabulary).itemsize
        writer = BlockWriter(draft, "train", T, vocabulary, shard_bytes)
        for rows in np.array_split(np.arange(count), 7):
            writer.add(np.stack([np.minimum(rows, vocabulary - 1)] * T, axis=1).astype(writer.dtype))
        writer.close()
        draft.facts = {"details": {"vocabulary": vocabulary, "block_tokens": T}}
    return Artifact.open(folder, Kind.BLOCKS)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_rows_come_in_the_order_asked_for() -> None:
    blocks_NT = torch.arange(30).view(10, 3)
    blocks = blocks_in_memory(blocks_NT.to(torch.int32))
    rows_B = torch.tensor([7, 0, 7, 9])
    assert torch.equal(blocks.take(rows_B), blocks_NT[rows_B])
    assert blocks.take(rows_B).dtype == torch.int64
    assert torch.equal(blocks.all(), blocks_NT)
    assert (len(blocks), blocks.block_tokens) == (10, 3)


@pytest.mark.parametrize("row", [-1, 10])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    blocks = blocks_in_memory(torch.zeros(10, 3, dtype=torch.int32))
    with pytest.raises(IndexError, match="of 10 blocks"):
        blocks.take(torch.tensor([0, row]))


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, torch.uint16), (65_537, torch.uint32)])
def test_ids_are_as_small_as_the_vocabulary_allows(tmp_path: Path, vocabulary: int, dtype: torch.dtype) -> None:
    found = packed(tmp_path / "blocks", 70_000, 70_000, vocabulary)
    assert found.tensors("train-00000")["tokens_NT"].dtype == dtype
    assert int(open_split(found, "train").take(torch.tensor([69_999]))[0, 0]) == vocabulary - 1


@pytest.mark.parametrize("count", [1, 9, 10, 11, 95])
def test_rows_are_found_over_all_shards(tmp_path: Path, count: int) -> None:
    found = packed(tmp_path / "blocks", count, 10)
    blocks = open_split(found, "train")
    rows_B = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    assert len(blocks) == count
    assert torch.equal(blocks.take(rows_B), rows_B[:, None].expand(-1, T))
    assert len(found.manifest.files) == -(-count // 10)


def test_shards_are_mapped_and_not_read(tmp_path: Path) -> None:
    blocks = open_split(packed(tmp_path / "blocks", 95, 10), "train")
    shard_NT = blocks.shard(3)
    assert not shard_NT.flags.owndata
    assert not shard_NT.flags.writeable
    assert isinstance(shard_NT.base, np.memmap)


@pytest.mark.parametrize(("sequential", "mapped"), [(False, 10), (True, 1)])
def test_where_blocks_are_read_in_order_one_shard_is_mapped_at_a_time(
    tmp_path: Path, sequential: bool, mapped: int
) -> None:
    """What was read of a mapped file counts as memory of the process for as long as it is mapped."""
    packed(tmp_path / "blocks", 95, 10)
    blocks = open_split(Artifact.open(tmp_path / "blocks", Kind.BLOCKS), "train", sequential=sequential)
    assert blocks.all()[:, 0].tolist() == [*range(95)]
    assert Path("/proc/self/maps").read_text().count(str(tmp_path / "blocks")) == mapped


def test_a_flipped_bit_is_found_before_its_shard_is_used_and_hurts_no_other(tmp_path: Path) -> None:
    found = packed(tmp_path / "blocks", 95, 10)
    flip_a_bit(tmp_path / "blocks/train-00003.safetensors")
    blocks = open_split(found, "train")
    assert blocks.take(torch.tensor([29, 40])).tolist() == [[29] * T, [40] * T]
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"train-00003\.safetensors was truncated or edited"):
            blocks.take(torch.tensor([29, 30]))
    with pytest.raises(ArtifactError, match=r"train-00003\.safetensors was truncated or edited"):
        Artifact.load(tmp_path / "blocks", Kind.BLOCKS)
    with pytest.raises(ArtifactError, match=r"train-00003\.safetensors was truncated or edited"):
        found.tensors("train-00003")


def test_a_shard_is_verified_once_before_its_first_use(tmp_path: Path) -> None:
    blocks = open_split(packed(tmp_path / "blocks", 95, 10), "train")
    assert blocks.take(torch.tensor([35])).tolist() == [[35] * T]
    flip_a_bit(tmp_path / "blocks/train-00003.safetensors")  # after it was verified and mapped: nobody looks again
    assert int(blocks.take(torch.tensor([34]))[0, 0]) == 34


def test_a_shard_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(ArtifactError, match=r"cannot write .*blocks: .*Free space there"):
        packed(tmp_path / "blocks", 4000, 1000)
    assert list(tmp_path.iterdir()) == []


def test_blocks_from_before_there_were_shards_are_to_be_made_again(tmp_path: Path) -> None:
    with artifact.create(tmp_path / "old", Kind.BLOCKS) as draft:
        for name in ("train", "dev", "test"):
            draft.tensors(name, {"tokens_NT": torch.zeros(3, T, dtype=torch.int32)})
        draft.facts = {"details": {"block_tokens": T, "vocabulary": 1000}, "library_version": "0.0.9"}
    with pytest.raises(ArtifactError, match=r"made by lingraft 0\.0\.9 and has no shards of its dev split.*Make the"):
        open_split(Artifact.open(tmp_path / "old", Kind.BLOCKS), "dev")


def test_a_truncated_shard_is_found_before_training_begins(tmp_path: Path) -> None:
    found = packed(tmp_path / "blocks", 95, 10)
    path = tmp_path / "blocks/train-00009.safetensors"
    path.write_bytes(path.read_bytes()[: 5 * T * 2])
    with pytest.raises(ArtifactError, match=r"train-00009\.safetensors was truncated or edited"):
        open_split(found, "train")
