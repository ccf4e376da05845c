"""A server that is loaded, changed and watched for a long time: the parts of `benchmarks.serving.soak`."""
