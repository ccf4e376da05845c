"""Pages of benchmarks with files beside them: compressed records, and pictures of few colours, to keep docs/ small."""

import io
import json
import lzma
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingraft.artifacts.files import write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORD_SUFFIX = ".json.xz"
_COLOURS = 128
"""Enough for lines, their smoothed edges and text."""
_DOTS_PER_INCH = 130


def write_page(place: Path, found: Any, text: str, picture: "Figure | bytes | None" = None) -> None:
    """Write a page in Markdown with its record, and its picture if it has one, beside each other.

    Args:
        place: path of all three without their suffix.
        found: the record, which the page is made from.
        text: the page.
        picture: a figure, or a PNG.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    write_record(place.with_suffix(RECORD_SUFFIX), found)
    if picture is not None:
        write_picture(place.with_suffix(".png"), picture)
    write_text(place.with_suffix(".md"), text)


def command_line(module: str, arguments: Sequence[str], hidden: Mapping[str, str]) -> str:
    """Return a command without the folders of this machine.

    Args:
        module: what is run.
        arguments: its options and their values, also as `--option=value`.
        hidden: words in place of values, by option; other absolute paths are shown by their last part, but for those
            within a value.
    """
    arguments = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    words = zip(["", *arguments], arguments, strict=False)
    told = [hidden.get(before, Path(word).name if word.startswith("/") else word) for before, word in words]
    return f"python -m {module} {shlex.join(told)}"


def read_record(path: Path) -> Any:
    """Return the value in a JSON file, compressed if its name ends in .xz."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def write_record(path: Path, value: Any) -> None:
    """Write a value as JSON, compressed if the file's name ends in .xz; equal values give equal bytes."""
    content = (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    write_bytes(path, lzma.compress(content, preset=9) if path.suffix == ".xz" else content)


def write_picture(path: Path, picture: "Figure | bytes") -> None:
    """Write a figure, or a picture as PNG, as a PNG with a palette, which takes a quarter of the bytes."""
    from PIL import Image  # lazy: pages without pictures are written where it is missing, too

    if not isinstance(picture, bytes):
        stream = io.BytesIO()
        picture.savefig(stream, dpi=_DOTS_PER_INCH, format="png")
        picture = stream.getvalue()
    with Image.open(io.BytesIO(picture)) as image:
        few = image.convert("RGB").quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, "PNG", optimize=True)
