from pathlib import Path

from benchmarks import checkpoint_stall


def test_what_a_checkpoint_costs_is_measured_on_real_ones(tmp_path: Path) -> None:
    recipe = checkpoint_stall.recipe_of(width=64, layers=2, vocabulary=500, tokens=256, steps=4)
    found = checkpoint_stall.measured(recipe, tmp_path)
    parameters = 500 * 64 + 130 * 64 + 2 * 12 * 64 * 64 + 64 * 64
    assert 12 * parameters < found["megabytes"] * 1e6 < 13 * parameters
    assert found["checkpoints"] >= 1
    assert 0 < found["stall_s"] < found["write_s"]
    assert list(tmp_path.glob("step-*"))
    assert checkpoint_stall.restored_s(tmp_path) > 0
