import random
import tracemalloc
from pathlib import Path

import pytest

from lingraft.data.cleaning import duplicates
from lingraft.data.cleaning.duplicates import DuplicateFinder


def flags_of(keys: list[bytes], folder: Path) -> list[bool]:
    folder.mkdir(parents=True)
    found = DuplicateFinder(folder)
    for start in range(0, len(keys), 7):
        found.add(b"".join(keys[start : start + 7]))
    return [bool(flag) for run in found.repeated_flags() for flag in run]


def expected(keys: list[bytes]) -> list[bool]:
    seen: set[bytes] = set()
    return [key in seen or seen.add(key) is not None for key in keys]


def drawn(count: int, different: int, prefix: bytes = b"") -> list[bytes]:
    draw = random.Random(different)
    keys = [prefix + draw.randbytes(16 - len(prefix)) for _ in range(different)]
    return [draw.choice(keys) for _ in range(count)]


@pytest.mark.parametrize("in_memory", [16, 1 << 20], ids=["on disk", "in memory"])
@pytest.mark.parametrize("different", [1, 5000])
def test_all_but_the_first_of_equal_keys_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int, different: int
) -> None:
    monkeypatch.setattr(duplicates, "_IN_MEMORY", in_memory)
    keys = drawn(3000, different)
    assert flags_of(keys, tmp_path / "keys") == expected(keys)


def test_a_file_with_too_many_different_keys_is_divided_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "_IN_MEMORY", 64)
    monkeypatch.setattr(duplicates, "_DIFFERENT", 8)
    monkeypatch.setattr(duplicates, "_WINDOW", 100)
    keys = drawn(3000, 1000, prefix=b"abc")
    assert flags_of(keys, tmp_path / "keys") == expected(keys)


@pytest.mark.parametrize("prefix", [b"", b"a"], ids=["spread over files", "all in one file"])
def test_memory_does_not_grow_with_the_number_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: bytes
) -> None:
    monkeypatch.setattr(duplicates, "_IN_MEMORY", 1 << 8)
    monkeypatch.setattr(duplicates, "_DIFFERENT", 1 << 8)
    monkeypatch.setattr(duplicates, "_WINDOW", 1 << 8)

    def peak(name: str, count: int) -> int:
        (tmp_path / name).mkdir()
        found, draw = DuplicateFinder(tmp_path / name), random.Random(0)
        tracemalloc.start()
        for _ in range(count // 64):
            found.add(b"".join(prefix + draw.randbytes(16 - len(prefix)) for _ in range(64)))
        assert sum(len(run) for run in found.repeated_flags()) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak("what is imported at the first use", 1 << 10)
    small = peak("small", 1 << 10)
    # Python grows its table of interned strings now and then, by megabytes, and not twice in a row.
    assert min(peak(f"large {number}", 1 << 12) for number in range(2)) < 1.5 * small
