"""The scripts of docker/ as modules: that folder is no package, and another one has its name."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "docker"


def script(name: str) -> ModuleType:
    """One of them, by its name without the ending."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return importlib.import_module(name)
