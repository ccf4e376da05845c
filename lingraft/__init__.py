"""Graft new languages onto pretrained language models by mini-model adaptation."""

__version__ = "0.1.0"
