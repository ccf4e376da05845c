"""Tables as aligned text and as Markdown, and numbers with their nouns and units."""

from collections.abc import Iterable, Sequence

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 layer", "1,500 layers"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{share:.1%}"


def format_flops(flops: float) -> str:
    """Return FLOPs with one decimal and the largest unit in which they are 1 or more, such as "54.1 EFLOP"."""
    power = sum(flops >= 1000**n for n in range(1, len(_PREFIXES)))
    return f"{flops / 1000.0**power:.1f} {_PREFIXES[power]}FLOP"


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return rows as lines whose columns align.

    Args:
        rows: cells of every row, as many in each.
        left: columns that align to the left; the others, of numbers, align to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def text_table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return aligned lines with a rule below the first row, which holds the titles; see `aligned`."""
    head, *body = aligned(rows, left)
    return [head, "-" * len(head), *body]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Return a table in Markdown.

    Args:
        header: titles of the columns.
        rows: cells, which may hold any character.
        left: columns that align to the left; the others, of numbers, align to the right.
    """
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    body = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *body))
