"""Words of sentences as an encoder reads them; the endpoint needs this, and no PyTorch."""

from collections.abc import Sequence

from lingraft.data.tokenizer.tokenizer import Tokenizer


def word_pieces(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Pieces of each word as it reads inside a sentence; one unknown piece where the tokenizer leaves nothing."""
    # The space makes byte-BPE's pieces those of a word's beginning; the others put their own mark there anyway.
    return [ids or [tokenizer.special.unknown] for ids in tokenizer.encode_all([f" {word}" for word in words])]
