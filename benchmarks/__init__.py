"""Measurements against thresholds and peers; each prints what it measured and how."""
