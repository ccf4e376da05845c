"""The rule of conftest.py, tried on runs of pytest of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

PASSES = "def test_passes():\n    assert True\n"


def run_pytest(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (folder / "test_sample.py").write_text(f"import pytest\nfrom pytest import mark\n\n{source}")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, folder, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_run_without_left_out_tests_passes(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, PASSES).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["one process", "workers"])
@pytest.mark.parametrize("mark", ["skip(reason='later')", "xfail"])
def test_a_run_with_a_left_out_test_fails_and_names_it(tmp_path: Path, mark: str, arguments: tuple[str, ...]) -> None:
    left_out = f"@mark.{mark}\ndef test_left_out():\n    assert False\n"

    run = run_pytest(tmp_path, f"{PASSES}\n{left_out}", *arguments)

    assert run.returncode == 1
    assert "counts as failed: test_sample.py::test_left_out" in run.stdout


def test_a_module_that_leaves_itself_out_fails_the_run(tmp_path: Path) -> None:
    source = f"pytest.{'skip'}('no', allow_module_level=True)\n{PASSES}"

    assert run_pytest(tmp_path, source).returncode != 0
