import resource
from pathlib import Path

import torch

from lingraft.model.kernels.cpu import reuse_freed_memory
from tests.fixtures import forked


def faults_of_three_rounds(reuse: bool) -> int:
    if reuse:
        assert reuse_freed_memory()
    before = 0
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            torch.zeros(10_000_000).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_freed_memory_is_used_again_without_a_page_fault(tmp_path: Path) -> None:
    plain, reused = (
        forked.start(faults_of_three_rounds, reuse, log=tmp_path / "log").returns() for reuse in (False, True)
    )
    assert reused < plain / 10
