"""The comparison of speed of learning: run small, for real."""

from pathlib import Path

import pytest

from benchmarks import learning_speed
from benchmarks.pages import read_record
from tests.huggingface.embedding_models import make_embedding_model


def test_every_side_trains_and_is_set_beside_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_embedding_model(tmp_path)
    model, pairs, out = tmp_path / "model", tmp_path / "pairs.tsv", tmp_path / "record.json"
    pairs.write_text("".join(f"a{number} b\tc{number} {'d ' * (number % 9)}e\n" for number in range(60)), "utf-8")
    monkeypatch.setattr(learning_speed, "_TURNS", 1)
    monkeypatch.setattr(learning_speed, "_SECONDS", 0.01)
    monkeypatch.setattr(learning_speed, "_BATCH_TOKENS", 64)
    monkeypatch.setattr(learning_speed, "_BLOCK_TOKENS", 16)
    given = ["learning_speed", "--pairs", str(pairs), "--model", str(model), "--depth", "1", "--updates", "2"]
    monkeypatch.setattr("sys.argv", [*given, "--out", str(out)])
    learning_speed.main()
    found = read_record(out)
    sides = [side["side"] for side in found["sides"]]
    assert len(sides) == 6
    assert all(side["tokens_per_s"] > 0 for side in found["sides"])
    distilled, whole, bottom, *_ = (side["limit_per_s"] for side in found["sides"])
    assert bottom == pytest.approx(3 * whole)
    assert distilled == pytest.approx(whole * 2 / 3)
    assert learning_speed.page(found) in capsys.readouterr().out
