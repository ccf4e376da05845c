"""What is a hole in the tables, and what is a mistake of ours that must not hide in one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lingraft.artifacts.failures import failure_reason, record_failure
from lingraft.errors import LingraftError


def no_memory_on_the_cpu() -> None:
    torch.empty(1 << 50)


def no_memory_in_python() -> None:
    bytearray(1 << 60)


def no_memory_on_a_device() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.")


def broken_device() -> None:
    raise torch.AcceleratorError("CUDA error: unspecified launch failure")


def no_disk() -> None:
    Path("/dev/full").write_text("x")


def bad_input() -> None:
    raise LingraftError("no text")


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (no_memory_on_the_cpu, "can't allocate memory"),
        (no_memory_in_python, "MemoryError"),
        (no_memory_on_a_device, "CUDA out of memory."),
        (broken_device, "unspecified launch failure"),
        (no_disk, "No space left"),
        (bad_input, "no text"),
    ],
)
def test_a_lack_of_input_disk_or_device_is_a_hole_that_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fail: Callable[[], None], words: str
) -> None:
    with record_failure(tmp_path / "out", "the job"):
        fail()
    assert str(failure_reason(tmp_path / "out")).startswith("the job: ")
    assert words in str(failure_reason(tmp_path / "out"))
    assert words in capsys.readouterr().err


def endless_recursion() -> None:
    endless_recursion()


def test_a_mistake_of_ours_is_raised_and_leaves_no_hole(tmp_path: Path) -> None:
    for fail in (lambda: torch.zeros(2, 3) @ torch.zeros(2, 3), endless_recursion, lambda: ()[0]):
        with pytest.raises((RuntimeError, IndexError)), record_failure(tmp_path / "out", "the job"):
            fail()
        assert failure_reason(tmp_path / "out") is None
