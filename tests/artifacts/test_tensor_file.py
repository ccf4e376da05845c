from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lingraft.artifacts.tensor_file import map_tensor, tensor_spans
from lingraft.errors import ArtifactError

TENSORS = {
    "half": torch.arange(6).reshape(2, 3).half(),
    "small": torch.tensor([-128, 127], dtype=torch.int8),
    "ids": torch.tensor([2**40]),
    "mask": torch.tensor([True, False]),
    "whole": torch.randn(3, 5),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "some.safetensors", {"a": "fact"})
    return tmp_path / "some.safetensors"


def test_tensors_are_read_where_they_lie(file: Path) -> None:
    found = {name: map_tensor(file, span) for name, span in tensor_spans(file).items()}
    assert found.keys() == TENSORS.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, TENSORS[name].numpy())
        assert array.dtype == TENSORS[name].numpy().dtype
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_a_format_that_numpy_lacks_is_named(tmp_path: Path) -> None:
    save_file({"table": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "brain.safetensors")
    (span,) = tensor_spans(tmp_path / "brain.safetensors").values()
    with pytest.raises(ArtifactError, match="values of type BF16"):
        map_tensor(tmp_path / "brain.safetensors", span)


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("neither a length nor a header")
    with pytest.raises(ArtifactError, match="not in the safetensors format"):
        tensor_spans(tmp_path / "text.safetensors")
