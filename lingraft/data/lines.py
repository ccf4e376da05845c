"""Reading of UTF-8 text files, plain or compressed; errors name file and line."""

import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, BinaryIO

from typing_extensions import override

from lingraft.artifacts.storage import TextPath, explain_read_errors
from lingraft.errors import TextError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSIONS = (".gz", ".xz", ".zst")
LONGEST_LINE_BYTES = 1 << 28
"""Default limit of a line; a whole JSON file, such as SQuAD's, is one line."""
_CHUNK_BYTES = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"


def suffix_of(path: TextPath | PurePosixPath) -> str:
    """Return the end of a file's name in lower case, without that of its compression: .txt of a.TXT.gz."""
    return (PurePosixPath(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix).lower()


def read_lines(path: TextPath, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
    r"""Yield a file's lines without their ends ("\n" or "\r\n"); .gz, .xz and .zst are unpacked on the way."""
    with opened(path) as stream:
        for number in count(1):
            raw = stream.readline(longest_bytes + 1)
            if not raw:
                return
            if len(raw) > longest_bytes and not raw.endswith(b"\n"):
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
            line = line.removesuffix("\n").removesuffix("\r")
            yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def read_bytes(path: TextPath, most_bytes: int) -> bytes:
    """Return a file's content; .gz, .xz and .zst are unpacked on the way."""
    with opened(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise TextError(
            f"{path} has more than {most_bytes:,} bytes. Divide it, or check that it is what its name says."
        )
    return content


@contextlib.contextmanager
def opened(path: TextPath) -> Iterator[IO[bytes]]:
    """Open a file for reading; .gz, .xz and .zst are unpacked on the way."""
    # A file that is no gzip is an OSError too, so damage is looked for within.
    with explain_read_errors(path), path.open("rb") as stream:
        try:
            yield _unpacked(stream, path.suffix)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise TextError(f"{path} is damaged or truncated: {error}. Compress or fetch it again.") from error


def _unpacked(stream: BinaryIO, suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return io.BufferedReader(gzip.GzipFile(fileobj=stream), _CHUNK_BYTES)
    if suffix == ".xz":
        return io.BufferedReader(lzma.LZMAFile(stream), _CHUNK_BYTES)
    return io.BufferedReader(_Zstandard(stream), _CHUNK_BYTES) if suffix == ".zst" else stream


class _Zstandard(io.RawIOBase):
    """A file of zstd frames. The package's own reader stops after the first, and takes a truncated one for complete."""

    def __init__(self, stream: BinaryIO) -> None:
        self._parts = _frames(stream)
        self._left = memoryview(b"")

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: "WriteableBuffer") -> int:
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._left = memoryview(part)
        room = memoryview(buffer)
        taken = min(len(room), len(self._left))
        room[:taken], self._left = self._left[:taken], self._left[taken:]
        return taken


def _frames(stream: BinaryIO) -> Iterator[bytes]:
    import zstandard  # lazy: few texts are packed so

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
