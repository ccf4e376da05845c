import gzip
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from lingraft.data.lines import read_lines
from lingraft.errors import TextError

PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress, "": bytes}
COMPRESSED = [".gz", ".xz", ".zst"]


@pytest.mark.parametrize("suffix", PACK)
def test_lines_come_back_as_written_from_files_appended_to_each_other_too(tmp_path: Path, suffix: str) -> None:
    lines = ["Grüße", "", "  γειά σου ", "\u2028 is no line end", "longer than a chunk " * (1 << 17), "last"]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix]("\n".join([*lines, ""]).encode()) + PACK[suffix](b"appended\n"))
    assert list(read_lines(path)) == [*lines, "appended"]


def test_windows_line_ends_and_byte_order_mark_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert list(read_lines(tmp_path / "a.txt")) == ["one", "two"]


@pytest.mark.parametrize("suffix", PACK)
def test_undecodable_bytes_are_named_by_file_line_and_byte(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](b"fine\nGr\xfc\xdfe\n"))
    with pytest.raises(TextError, match=r"line 2: byte 3 of the line \(0xfc\) is not UTF-8") as caught:
        list(read_lines(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_truncated_compressed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    packed = PACK[suffix](os.urandom(200_000).hex().encode())
    for content in (packed[: len(packed) // 2], b"plain text under a compressed file's name\n"):
        path.write_bytes(content)
        with pytest.raises(TextError, match="damaged or truncated"):
            list(read_lines(path))


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_byte_changed_in_a_compressed_file_is_noticed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    pack = zstandard.ZstdCompressor(write_checksum=True).compress if suffix == ".zst" else PACK[suffix]
    packed = bytearray(pack(os.urandom(1000).hex().encode()))
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(TextError, match="damaged or truncated"):
        list(read_lines(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"absent\.txt cannot be read: No such file"):
        list(read_lines(tmp_path / "absent.txt"))


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("length", [21, 3 << 20])
def test_a_line_that_is_too_long_is_refused_wherever_it_ends(tmp_path: Path, suffix: str, length: int) -> None:
    path = tmp_path / f"a.txt{suffix}"
    for end in (b"", b"\nend\n"):
        path.write_bytes(PACK[suffix](b"x" * 20 + b"\n" + b"y" * length + end))
        with pytest.raises(TextError, match=r"line 2: the line has more than 20 bytes. Break it into shorter lines"):
            list(read_lines(path, 20))


def test_no_more_of_a_line_that_is_too_long_is_read_than_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as stream:
        stream.truncate(1 << 34)
    with pytest.raises(TextError, match="line 1: the line has more than 1,000 bytes"):
        list(read_lines(path, 1000))
