"""Rate of a matrix product: what a training step can at best reach."""

import time

import torch


@torch.inference_mode()
def rate(product: tuple[int, int, int], seconds: float) -> float:
    """FLOP/s of a product in float32 (rows, reduced size, columns), the best of as many as fit into some seconds."""
    rows, reduced, columns = product
    left, right = torch.randn(rows, reduced), torch.randn(reduced, columns)
    out = torch.mm(left, right)
    best_s, ends_at = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        best_s = min(best_s, time.perf_counter() - started)
    return 2 * rows * reduced * columns / best_s
