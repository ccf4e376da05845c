"""The door to Hugging Face: checkpoints and tokenizers in, folders that transformers loads out."""

from importlib.util import find_spec

from lingraft.errors import MissingExtraError


def require_transformers() -> None:
    """Look for transformers, which brings all that is imported here, before long work rather than in its midst."""
    if find_spec("transformers") is None:
        raise MissingExtraError("transformers", "huggingface")
