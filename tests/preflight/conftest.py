"""What the tests of this folder share."""

from tests.fixtures.language_model import language_model

__all__ = ["language_model"]
