"""Reading of lines from a UTF-8 text file, plain or compressed; errors name file and line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, BinaryIO

from lingraft.artifacts.storage import TextPath, explain_read_errors
from lingraft.errors import TextError

COMPRESSIONS = (".gz", ".xz", ".zst")
LONGEST_LINE_BYTES = 1 << 28
"""Default limit of a line; a whole JSON file, such as SQuAD's, is one line."""
_CHUNK_BYTES = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"


def suffix_of(path: TextPath | PurePosixPath) -> str:
    """Return the end of a file's name in lower case, without that of its compression: .txt of a.TXT.gz."""
    return (PurePosixPath(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix).lower()


def read_lines(path: TextPath, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
    r"""Yield a file's lines without their ends ("\n" or "\r\n"); .gz, .xz and .zst are unpacked on the way.

    Args:
        path: the file.
        longest_bytes: most bytes that a line may have.
    """
    for number, raw in enumerate(_split(unpacked(path), longest_bytes), start=1):
        if len(raw) > longest_bytes:
            raise TextError(
                f"{path}, line {number}: the line has more than {longest_bytes:,} bytes. "
                "Break it into shorter lines, or check that the file is text."
            )
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextError(
                f"{path}, line {number}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) "
                "is not UTF-8. Convert the file to UTF-8 first, for example with iconv."
            ) from error
        line = line.removesuffix("\r")
        yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def read_bytes(path: TextPath, most_bytes: int) -> bytes:
    """Return a file's content; .gz, .xz and .zst are unpacked on the way."""
    held = bytearray()
    for chunk in unpacked(path):
        held += chunk
        if len(held) > most_bytes:
            raise TextError(
                f"{path} has more than {most_bytes:,} bytes. Divide it, or check that it is what its name says."
            )
    return bytes(held)


def _split(chunks: Iterator[bytes], longest_bytes: int) -> Iterator[bytes]:
    """Yield lines; one that is too long is the last, as far as it was read."""
    pending: list[bytes] = []
    held = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pending.append(first)
        held += len(first)
        if others:
            yield b"".join(pending)
            yield from others[:-1]
            pending, held = [others[-1]], len(others[-1])
        elif held > longest_bytes:
            break
    if held:
        yield b"".join(pending)


def unpacked(path: TextPath) -> Iterator[bytes]:
    """Yield a file's content in parts of a megabyte; .gz, .xz and .zst are unpacked on the way."""
    # A file that is no gzip is an OSError too, so damage is looked for within.
    with explain_read_errors(path), path.open("rb") as stream:
        try:
            yield from _chunks(stream, path.suffix)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise TextError(f"{path} is damaged or truncated: {error}. Compress or fetch it again.") from error


def _chunks(stream: BinaryIO, suffix: str) -> Iterator[bytes]:
    if suffix == ".gz":
        return _plain(gzip.GzipFile(fileobj=stream))
    if suffix == ".xz":
        return _plain(lzma.LZMAFile(stream))
    return _zstandard(stream) if suffix == ".zst" else _plain(stream)


def _plain(stream: IO[bytes] | gzip.GzipFile | lzma.LZMAFile) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _zstandard(stream: BinaryIO) -> Iterator[bytes]:
    import zstandard  # lazy: few texts are packed so

    # zstandard's own file reader stops after the first frame and takes a truncated one for complete.
    decoder = zstandard.ZstdDecompressor().decompressobj()
    while chunk := stream.read(_CHUNK_BYTES):
        while chunk:
            if decoder.eof:
                decoder = zstandard.ZstdDecompressor().decompressobj()
            try:
                yield decoder.decompress(chunk)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            chunk = decoder.unused_data
    if not decoder.eof:
        raise EOFError("it ends in the middle of a zstd frame")
