"""The benchmark against Trainer: what its page says of what was measured, and both sides for real at a tiny shape."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import training_speed
from benchmarks.pages import RECORD_SUFFIX, read_record
from benchmarks.speed.breakdown import broken_down
from benchmarks.speed.cells import Cell, Shape, Training
from benchmarks.speed.records import OtherMachineError, Records
from benchmarks.speed.settings import Settings
from benchmarks.speed.side import Side
from benchmarks.speed.store import stored
from lingraft.data.shards import WINDOW_SHARDS
from tests.fixtures.forked import start

MB = 1 << 20
TINY = Shape("tiny, 16 tokens", 32, 2, 300, 16, 2)


def test_records_of_another_batch_or_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    assert Records(path, "batch", {"torch": "1"}).get("peak", "one", lambda: 3.0) == 3.0
    assert Records(path, "batch", {"torch": "1"}).get("peak", "one", lambda: 4.0) == 3.0
    for batch, machine in (("other", {"torch": "1"}), ("batch", {"torch": "2"})):
        with pytest.raises(OtherMachineError, match="do not compare"):
            Records(path, batch, machine)


def test_blocks_come_back_from_shards_on_disk(tmp_path: Path) -> None:
    blocks_NT = torch.arange(19 * 4).view(19, 4)
    found = stored(blocks_NT, 300, tmp_path / "blocks")
    assert torch.equal(found.all(), blocks_NT)
    assert len([*(tmp_path / "blocks").glob("train-*.safetensors")]) > WINDOW_SHARDS


@pytest.mark.nightly
def test_both_sides_train_and_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(TINY, "fp32", Training.MINI)
    monkeypatch.setattr(Settings, "alternatives", staticmethod(lambda: iter([{"attention": "eager"}])))
    monkeypatch.setattr(training_speed, "cells", lambda *_: [cell])
    given = ["--heap", "--plain", "--rounds", "1", "--tokens", str(TINY.tokens_per_step)]
    given += ["--out", str(tmp_path / "speed")]
    monkeypatch.setattr(sys, "argv", ["training_speed", *given])
    training_speed.main()
    found = read_record(tmp_path / f"speed{RECORD_SUFFIX}")
    record = found["comparison"][cell.name]
    assert record["steps_of_a_round"][0] >= 3
    assert record["lingraft"]["waiting_s"] > 0
    assert record["peak_flop_s"] > 0
    assert record["ratio"] == pytest.approx(record["trainer"]["step_s"] / record["lingraft"]["step_s"])
    assert f"| {found['plain'][cell.name]['ratio']:.2f} |" in (tmp_path / "speed.md").read_text()
    assert min(record[name]["peak_bytes"] for name in ("lingraft", "trainer")) > 2**26
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    training_speed.main()
    assert read_record(tmp_path / f"speed{RECORD_SUFFIX}") == found


@pytest.mark.integration
def test_both_sides_train() -> None:
    cell = Cell(TINY, "fp32", Training.STEP_1B)
    with Side(cell) as own, Side(cell, Settings()) as peer:
        assert own.train(2).step_s > 0
        assert peer.train(2).step_s > 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("training", "frozen"),
    [
        (Training.ADAPTATION, {"layer.11", "position_embeddings", "lm_head.dense"}),
        (Training.STEP_1B, {"layer.0", "layer.1", "word_embeddings", "lm_head.bias"}),
    ],
)
def test_the_peer_freezes_what_the_stage_does_not_train(training: Training, frozen: set[str]) -> None:
    from benchmarks.speed.peer import model

    parameters = [*model(Cell(TINY, "fp32", training), "sdpa").named_parameters()]
    trained = " ".join(name for name, parameter in parameters if parameter.requires_grad)
    everything = " ".join(name for name, _ in parameters)
    for part in frozen:
        assert part in everything
        assert part not in trained
    assert trained


def test_a_child_is_not_charged_with_what_its_parent_held() -> None:
    child = "from benchmarks.speed.memory import resident_peak_bytes; print(resident_peak_bytes())"
    parent = f"import subprocess, sys; held = bytearray({300 * MB}); subprocess.run([sys.executable, '-c', {child!r}])"
    found = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True, text=True)
    assert MB < int(found.stdout) < 200 * MB


@pytest.mark.integration
def test_a_step_is_broken_down_into_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(TINY, "fp32", Training.PRETRAINING)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # whose operations run on while Python does
    # In a process of its own: it times the loop's own functions.
    found = start(broken_down, cell, steps=2, log=tmp_path / "log").returns()
    rows = [line.split("|") for line in found.splitlines() if "% |" in line]
    parts = {name.strip(): float(ms.replace(",", "")) for _, name, ms, *_ in rows}
    assert {"products of matrices", "attention", "activation", "LayerNorm", "cross-entropy", "optimizer"} < {*parts}
    assert min(parts.values()) >= 0
    timed_ms = float(found.split("a step, ")[1].split(" ms")[0].replace(",", ""))
    assert sum(parts.values()) == pytest.approx(timed_ms, abs=2)
