"""Graft new languages onto pretrained language models by mini-model adaptation."""

TYPE_CHECKING = False
"""Type checkers take it for true; `typing` would take a third of the time until `lingraft.startup` is imported."""

__version__ = "0.1.0"
_PLACES = {"Wanted": "lingraft.lane.recipe", "add_language": "lingraft.lane.run"}
__all__ = ["Wanted", "__version__", "add_language"]

if TYPE_CHECKING:
    from lingraft.lane.recipe import Wanted
    from lingraft.lane.run import add_language


def __getattr__(name: str) -> object:
    """What stands for the whole lane is imported when it is asked for: it needs PyTorch, and most steps do not."""
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
