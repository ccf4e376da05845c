"""Everything that a GPU is to be asked, in one command: see `benchmarks.gpu.__main__`."""
