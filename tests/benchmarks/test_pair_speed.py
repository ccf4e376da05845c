"""The comparison of speed of learning by pairs: run small, for real."""

from pathlib import Path

import pytest

from benchmarks import pair_speed
from benchmarks.pages import read_record
from tests.huggingface.embedding_models import make_embedding_model


def test_every_side_trains_and_is_set_beside_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_embedding_model(tmp_path)
    model, pairs, out = tmp_path / "model", tmp_path / "pairs.tsv", tmp_path / "record.json"
    pairs.write_text("".join(f"a{number} b\tc{number} {'d ' * (number % 9)}e\n" for number in range(60)), "utf-8")
    monkeypatch.setattr(pair_speed, "_TURNS", 1)
    monkeypatch.setattr(pair_speed, "_SECONDS", 0.01)
    monkeypatch.setattr(pair_speed, "_BATCH_TOKENS", 64)
    given = ["pair_speed", "--pairs", str(pairs), "--model", str(model), "--depth", "1", "--updates", "2"]
    monkeypatch.setattr("sys.argv", [*given, "--out", str(out)])
    pair_speed.main()
    found = read_record(out)
    sides = [side["side"] for side in found["sides"]]
    assert sides[0] == "sentence-transformers, all weights"
    assert [side.split()[-2] for side in sides[1:]] == ["3", "1"]
    assert all(side["pairs_per_s"] > 0 for side in found["sides"])
    bottom, whole = found["sides"][2], found["sides"][1]
    assert bottom["limit_per_s"] == pytest.approx(3 * whole["limit_per_s"])
    assert found["sides"][0]["limit_per_s"] == pytest.approx(whole["limit_per_s"] * 2 / 3)
    assert pair_speed.page(found) in capsys.readouterr().out
