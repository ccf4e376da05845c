"""Thin KFP components: each is imports, paths and one call of `lingraft.steps`."""
