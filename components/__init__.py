"""Thin KFP components: each consists of imports, paths and one call of `lingraft.steps`."""
