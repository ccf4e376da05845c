"""Progressive adaptation against every fixed depth at equal FLOPs; see `benchmarks.progressive_depth`."""
