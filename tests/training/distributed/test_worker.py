import os
from pathlib import Path

import pytest
import torch

from lingraft import ranks
from lingraft.stages import worker


@pytest.mark.parametrize(
    ("quota", "processes", "threads"), [("400000 100000", 2, 2), ("max 100000", 2, 4), ("50000 100000", 2, 1)]
)
def test_processes_share_the_cores_that_the_containers_quota_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, processes: int, threads: int
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(ranks, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    before = torch.get_num_threads()
    try:
        worker._share_threads()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
