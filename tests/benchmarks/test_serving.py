"""The benchmark of serving: what its page says of what was measured, and all parts for real at a tiny shape."""

import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import RECORD_SUFFIX
from benchmarks.serving import __main__ as program
from benchmarks.serving.memory import extrapolated
from benchmarks.serving.turns import in_turns, percentile


def test_numbers_are_percentiles_of_sides_in_turns() -> None:
    order: list[str] = []
    in_turns({name: lambda name=name: order.append(name) for name in "abc"}, rounds=2)
    assert "".join(order) == "abc" + "abc" + "cba"  # no side always follows the same one
    assert percentile([float(value) for value in range(1, 101)], 0.95) == 95.0
    assert extrapolated([100, 300, 500], wanted=6) == pytest.approx(1300)


def measured_twice(parts: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is found in parts at a tiny shape; a second run finds it measured."""
    given = ["--out", str(folder / "out"), "--page", str(folder / "page")]
    given += ["--languages", "2", "--vocabulary", "300", "--layers", "2", "--width", "32", "--block-tokens", "64"]
    given += ["--rounds", "2", "--texts", "8", "--stream-rounds", "1", "--separate-models", "2"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.serving", *given, "--parts", *parts])
    program.main()
    written = (folder / "page" / f"serving{RECORD_SUFFIX}").read_bytes()
    program.main()
    assert (folder / "page" / f"serving{RECORD_SUFFIX}").read_bytes() == written
    found: dict[str, Any] = json.loads(lzma.decompress(written))["found"]
    assert set(found) == set(parts)
    return found


@pytest.mark.integration
def test_parts_run_and_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured_twice(["memory", "latency", "throughput"], tmp_path, monkeypatch)
    assert found["memory"]["tables"]["float16"] == 2 * 300 * 32 * 2
    assert len(found["memory"]["separate"]) == 3
