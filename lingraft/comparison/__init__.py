"""The paper's comparison: systems x languages x tasks x seeds, run job by job."""
