"""The scripts of docker/ as modules: that folder is no package, and another one has its name."""

import importlib.util
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "docker"


def script(name: str) -> ModuleType:
    """One of them, by its name without the ending."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
