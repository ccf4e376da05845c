"""The whole lane of a language as one resumable call."""
