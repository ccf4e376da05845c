"""Every so manieth part of a text: what a benchmark reads of data that is larger than its budget."""

import lzma
from pathlib import Path

from lingraft.artifacts.files import write_text

_MB = 1_000_000


def sample(source: Path, megabytes: float, out: Path) -> None:
    """Keep every so manieth of a file's parts, which blank lines separate, so that about so much is left.

    Files are ordered by sources, so that the beginning would be of one source alone.

    Args:
        source: plain text, or .xz.
        megabytes: size of the sample; a smaller file is kept whole.
        out: file of the sample; left as it is if it is there.
    """
    if out.exists():
        return
    opened = lzma.open if source.suffix == ".xz" else open
    with opened(source, "rt", encoding="utf-8") as stream:
        text = stream.read()
    every = max(1, round(len(text.encode()) / (megabytes * _MB)))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "\n\n".join(text.split("\n\n")[::every]) + "\n")
