"""Parts of `benchmarks.training_speed`."""
