"""What training costs: the paper's formulas, bills of a recipe, and plans for accelerators."""
