"""The report of a run: scores, curves, words, the gate's verdicts, FLOPs and hours."""
