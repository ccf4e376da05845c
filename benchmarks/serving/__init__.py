"""Benchmarks of the endpoint: memory, latency, throughput, and a soak."""
