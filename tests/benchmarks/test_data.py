import sys

import pytest

from benchmarks.process_tree import CommandError, run

MB = 1 << 20
CHILD = f"import time; held = bytearray({200 * MB}); time.sleep(0.3)"


def test_memory_of_children_counts() -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    ran = run([sys.executable, "-c", parent])
    assert 200 * MB < ran.peak_bytes < 300 * MB
    assert ran.elapsed_s > 0.3


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandError, match="no such thing") as failed:
        run([sys.executable, "-c", "import time; time.sleep(0.2); raise SystemExit('no such thing')"])
    assert failed.value.ran.elapsed_s > 0.2
