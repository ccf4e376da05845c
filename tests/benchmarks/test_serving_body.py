"""The comparison of bodies, at a small shape: that all sides compute the same."""

from pathlib import Path

import pytest
import torch

from benchmarks.serving import body
from lingraft.config.encoder import EncoderShape
from lingraft.config.gate import PARITY_TOLERANCE


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_all_sides_compute_the_same_and_each_is_measured(tmp_path: Path) -> None:
    shape = EncoderShape(width=32, layers=2, attention_heads=2, mlm_heads=(2,), block_tokens=16)
    compared = dict(body.sides(shape, 50, tmp_path))
    tokens_BT = torch.randint(5, 50, (2, 8))
    far = body.furthest(compared, tokens_BT)
    assert set(far) == {"pytorch", "exporter", "ours fp32", "ours int8"}
    assert far["exporter"] <= PARITY_TOLERANCE
    assert far["ours fp32"] <= PARITY_TOLERANCE
    assert 0 < far["ours int8"] < 0.1
    found = {"2": body.measured(compared, tokens_BT, rounds=2)}
    assert all(ms > 0 for ms in found["2"].values())
    assert body.table(found).count("\n| 2 |") == len(far)
