"""Benchmarks of embedding models: a new language in an index, and speed and memory beside sentence-transformers."""
