"""Reports on runs, on the paper's comparison and on costs."""
