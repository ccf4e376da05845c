"""Tokenizers: SentencePiece models that Lingraft trains, and those of imported primaries."""
