"""One bundle."""

from tests.serving.conftest import bundle

__all__ = ["bundle"]
