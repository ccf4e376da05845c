"""Artifacts, which are folders with a manifest, and how they are locked, cached, shared and fetched."""
