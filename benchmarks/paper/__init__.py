"""The paper's comparison on real text: one command, and the page of what came out."""
