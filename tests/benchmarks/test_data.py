import subprocess
import sys
import threading
from typing import Any

import pytest

from benchmarks.data import over_rounds
from benchmarks.data_page import page
from benchmarks.process_tree import CommandError, Ran, run

MB = 1 << 20
CHILD = f"import time; held = bytearray({200 * MB}); time.sleep(0.6)"


def test_memory_of_children_counts() -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    ran = run([sys.executable, "-c", parent])
    assert 200 * MB < ran.peak_bytes < 300 * MB
    assert ran.elapsed_s > 0.6


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandError, match="no such thing") as failed:
        run([sys.executable, "-c", "import time; time.sleep(0.2); raise SystemExit('no such thing')"])
    assert failed.value.ran.elapsed_s > 0.2


def test_nothing_goes_on_looking_when_a_command_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(_: subprocess.Popen[bytes]) -> None:
        raise RuntimeError("broken off")

    monkeypatch.setattr(subprocess.Popen, "communicate", broken_off)
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match="broken off"):
        run([sys.executable, "-c", "pass"])
    assert threading.active_count() == threads


def test_rounds_give_median_times_and_the_most_memory() -> None:
    found = over_rounds([{"text": Ran(seconds, peak)} for seconds, peak in ((3.0, 7), (1.0, 9), (2.0, 8))])
    assert found == {"text": {"elapsed_s": 2.0, "rounds_s": [3.0, 1.0, 2.0], "peak_bytes": 9}}


def test_the_page_adds_up() -> None:
    def ran(elapsed_s: float, gib: float) -> dict[str, Any]:
        return {"elapsed_s": elapsed_s, "peak_bytes": int(gib * 2**30)}

    one = {
        "text": ran(4, 0.25),
        "tokenizer": ran(9, 1),
        "blocks": ran(6, 0.5),
        "peer": ran(15, 0.75),
        "plain_text": ran(1, 0.25),
        "plain_blocks": ran(4, 0.5),
        "rounds": 3,
        "text_bytes": 50_000_000,
        "tokens": 2_000_000,
        "equal_lines": 1.0,
    }
    other = one | {"peer": ran(35, 1.5)}
    flat = {"language": "sw", "copies": 4, "once": one, "copied": one | {"blocks": ran(20, 0.625)}}
    found = page({"sw": one, "tr": other, "flatness": flat}, 50_000, 1000, 512)
    assert "| sw | 3 | 50.0 | 2.0 | 9 | 1.00 | 10.0 | 5.0 | 15.0 | **3.00** | 5.0 | 0.50 | 0.75 | 100.00% |" in found
    assert "100 MB of text in **20 s** (5.0 MB/s); as is 10 s, the peer 50 s, **5.00 times** ours" in found
    assert "training tokenizers 1.00 GiB." in found
    assert "| blocks | 0.500 | 0.625 | 6.0 | 20.0 |" in found
