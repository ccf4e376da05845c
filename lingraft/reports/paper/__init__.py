"""The paper's tables and figures from records of our own runs."""
