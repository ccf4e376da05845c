"""Machines, and what they measure."""
