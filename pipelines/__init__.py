"""The pipelines: `source` once a primary, `depth_search` and `language` once a language; see `python -m pipelines`."""
