"""Graft new languages onto pretrained language models by mini-model adaptation."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
_PLACES = {"Wanted": "lingraft.lane.recipe", "add_language": "lingraft.lane.run"}
__all__ = ["Wanted", "__version__", "add_language"]

if TYPE_CHECKING:
    from lingraft.lane.recipe import Wanted
    from lingraft.lane.run import add_language


def __getattr__(name: str) -> Any:
    """What stands for the whole lane is imported when it is asked for: it needs PyTorch, and most steps do not."""
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
