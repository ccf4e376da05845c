"""Rows that a new language starts from."""
