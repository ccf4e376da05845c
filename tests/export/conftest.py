"""Models of every kind to export, and one bundle of each."""

from tests.serving.conftest import bundle, pieces, tiny

__all__ = ["bundle", "pieces", "tiny"]
