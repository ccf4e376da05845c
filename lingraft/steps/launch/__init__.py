"""Steps in places that may vanish: a child process here, a Kubernetes Job or TrainJob on a cluster.

Whoever launches outlives what it launched, so that somebody can still say what became of it. It starts again what was
lost by no fault of its own, and returns everything else as an outcome.
"""
