"""The Makefile run as from a shell."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make as from a shell, also where the tests themselves were started by make."""
    outside = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    return subprocess.run(["make", *arguments], cwd=folder, env=outside, check=False, capture_output=True, text=True)
