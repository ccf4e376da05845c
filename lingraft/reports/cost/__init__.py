"""Costs of training: the paper's formulas, bills of a recipe, hours and money on accelerators."""
