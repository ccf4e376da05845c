"""Numbers with their nouns, as sentences and tables say them."""

import math


def counted(count: int, noun: str) -> str:
    """1 layer, 2 layers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def megabytes(size: int) -> str:
    """Bytes in MB, without the unit: one decimal, and two significant digits for less than 1."""
    number = size / 1e6
    decimals = 1 if number >= 1 or size == 0 else 1 - math.floor(math.log10(number))
    return f"{number:,.{decimals}f}"
