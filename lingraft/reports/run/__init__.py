"""The report of a run: tables for the terminal, one HTML page."""
