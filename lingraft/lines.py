"""Lines of a UTF-8 text file, plain or compressed, with damage reported by file and line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO

import zstandard

from lingraft.errors import TextError
from lingraft.places import Place, reading

COMPRESSIONS = (".gz", ".xz", ".zst")
_CHUNK_BYTES = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Place) -> Iterator[str]:
    r"""Yield a file's lines without their ends ("\n" or "\r\n"); .gz, .xz and .zst are unpacked on the way.

    Raises:
        TextError: the file cannot be read, its compression is damaged or truncated, or a line is not UTF-8.
    """
    for number, raw in enumerate(_split(_unpacked(path)), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextError(
                f"{path}, line {number}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) "
                "is not UTF-8. Convert the file to UTF-8 first, for example with iconv."
            ) from error
        line = line.removesuffix("\r")
        yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    pending = b""
    for chunk in chunks:
        *complete, pending = (pending + chunk).split(b"\n")
        yield from complete
    if pending:
        yield pending


def _unpacked(path: Place) -> Iterator[bytes]:
    # A file that is no gzip is an OSError too, so damage is looked for within.
    with reading(path), path.open("rb") as stream:
        try:
            yield from _chunks(stream, path.suffix)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
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
    # zstandard's own file reader stops after the first frame and takes a truncated one for complete.
    decoder = zstandard.ZstdDecompressor().decompressobj()
    while chunk := stream.read(_CHUNK_BYTES):
        while chunk:
            if decoder.eof:
                decoder = zstandard.ZstdDecompressor().decompressobj()
            yield decoder.decompress(chunk)
            chunk = decoder.unused_data
    if not decoder.eof:
        raise EOFError("it ends in the middle of a zstd frame")
