"""Downstream tasks: loading, batches, head and metric, each in a module of its own."""
