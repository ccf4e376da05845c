"""The bundle: the format that export writes and serving reads. Nothing here needs PyTorch."""
