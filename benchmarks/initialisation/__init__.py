"""Comparison of initialisations: how soon each system is near its final score."""
