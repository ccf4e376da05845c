"""Costs of training before it starts, by the paper's formulas: FLOPs, and hours at a rate."""
