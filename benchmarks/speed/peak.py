"""The matrix-multiplication peak of a machine: the best rate over a training step's own products and a large square."""

import time
from collections.abc import Iterator

import torch

from benchmarks.speed.cells import Format, Shape
from lingraft.training.precision import device

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SQUARE, _SECONDS, _AGAIN_S = 4096, 1.5, 0.5

_TIMES = " x "

Product = tuple[int, int, int]
"""Rows, reduced size and columns of a matrix product."""


def products(shape: Shape) -> Iterator[Product]:
    """The products of a layer's forward pass, those of the output projection, and a large square."""
    rows, width = shape.tokens_per_step, shape.width
    for columns in (width, 3 * width, 4 * width):
        yield rows, width, columns
    yield rows, 4 * width, width
    masked = round(0.15 * rows)
    yield masked, width, shape.vocabulary
    yield masked, shape.vocabulary, width
    yield _SQUARE, _SQUARE, _SQUARE


def rates(shape: Shape, number_format: Format) -> dict[str, float]:
    """FLOP/s of each product, the best of some repetitions."""
    return {_TIMES.join(map(str, product)): rate(product, number_format, _SECONDS) for product in products(shape)}


def fastest(found: dict[str, float]) -> Product:
    """Return the product with the highest of the rates."""
    rows, reduced, columns = map(int, max(found, key=found.__getitem__).split(_TIMES))
    return rows, reduced, columns


def peak(product: Product, number_format: Format) -> float:
    """FLOP/s of one product, measured briefly."""
    return rate(product, number_format, _AGAIN_S)


@torch.inference_mode()
def rate(product: Product, number_format: Format, seconds: float) -> float:
    """FLOP/s of one product, the best of as many repetitions as fit into some seconds."""
    rows, reduced, columns = product
    options = {"dtype": _DTYPES[number_format], "device": device()}
    left, right = torch.randn(rows, reduced, **options), torch.randn(reduced, columns, **options)
    out = torch.mm(left, right)
    best_s, ends_at = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        wait()
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        wait()
        best_s = min(best_s, time.perf_counter() - started)
    return 2 * rows * reduced * columns / best_s


def wait() -> None:
    """Wait until a GPU has done what it was told to; a CPU has."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
