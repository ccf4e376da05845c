"""Artifacts and the places they are kept in: folders with a manifest, locks, caches, object storage."""
