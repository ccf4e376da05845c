"""Tokenizers: SentencePiece models of our own, and those that imported primaries bring."""
