"""Graft new languages onto pretrained language models by mini-model adaptation."""

from lingraft._version import __version__

TYPE_CHECKING = False
"""Type checkers take it for true; `typing` would take a third of the time until `lingraft.signals` is imported."""

_PLACES = {
    "Primary": "lingraft.api",
    "Wanted": "lingraft.new_language.recipe",
    "add_language": "lingraft.new_language.run",
}
__all__ = ["Primary", "Wanted", "__version__", "add_language"]

if TYPE_CHECKING:
    from lingraft.api import Primary
    from lingraft.new_language.recipe import Wanted
    from lingraft.new_language.run import add_language


def __getattr__(name: str) -> object:
    """Import a public name when it is used, since it needs PyTorch, and most steps do not."""
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
