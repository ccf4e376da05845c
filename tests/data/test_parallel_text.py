import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from lingraft.data.parallel_text import DUPLICATE, EMPTY, Pair, pairs_or_errors, read_pairs
from lingraft.errors import TextError

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def errors(files: str | tuple[str, str]) -> list[str]:
    return [str(found) for found in pairs_or_errors(files) if not isinstance(found, Pair)]


def two(folder: Path, source: str, target: str) -> tuple[str, str]:
    (folder / "a.en").write_text(source)
    (folder / "a.xx").write_text(target)
    return str(folder / "a.en"), str(folder / "a.xx")


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_both_layouts_hold_the_same_pairs(suffix: str, tmp_path: Path) -> None:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(COMPRESSIONS[suffix](text.encode()))
        return str(tmp_path / name)

    one = write(f"pairs.tsv{suffix}", "the sol\tzun mo\r\nlun ti\tmun\n")
    each = write(f"a.en{suffix}", "the sol\nlun ti\n"), write(f"a.xx{suffix}", "zun mo\nmun\n")
    expected = [("the sol", "zun mo"), ("lun ti", "mun")]
    assert [(pair.source, pair.target) for pair in read_pairs(one)] == expected
    assert [(pair.source, pair.target) for pair in read_pairs(each)] == expected
    assert [pair.place for pair in read_pairs(one)][1] == f"{one}, line 2"
    assert [pair.place for pair in read_pairs(each)][1] == f"{each[0]} and {each[1]}, line 2"


@pytest.mark.parametrize(("source", "target"), [("a\nb\nc\n", "x\n"), ("a\n", "x\ny\nz\n")])
def test_files_of_unequal_length_are_refused_with_both_counts(source: str, target: str, tmp_path: Path) -> None:
    files = two(tmp_path, source, target)
    counts = source.count("\n"), target.count("\n")
    assert errors(files) == [
        f"{files[0]} has {counts[0]} lines, but {files[1]} has {counts[1]}: line by line they are no translations of "
        "each other. Give two files that were made together."
    ]


def test_lines_of_another_number_of_columns_are_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("sol\tzun\nlun\nmar\ttal\t0.3\n\nti\tta\n")
    assert [message.split(" instead")[0] for message in errors(str(file))] == [
        f"{file}, line 2: 1 column",
        f"{file}, line 3: 3 columns",
    ]


def test_a_file_without_tabs_is_told_once_with_the_other_layout(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("sol\n" * 1000)
    [message] = errors(str(tmp_path / "a.en"))
    assert "If each language has a file of its own, give both: [source file, target file]." in message


def test_empty_sides_and_repetitions_are_left_out_and_counted(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(20)]
    files = two(tmp_path, "\n".join([*numbers, "lun", "7"]), "\n".join([*numbers, " ", "7"]))
    left_out: Counter[str] = Counter()
    assert len([*read_pairs(files, left_out)]) == 20
    assert left_out == {EMPTY: 1, DUPLICATE: 1}


def test_text_whose_pairs_are_often_empty_is_refused_with_counts(tmp_path: Path) -> None:
    files = two(tmp_path, "a\nb\nc\nd\n", "w\n\n\nz\n")
    with pytest.raises(TextError, match=r"a\.xx: 2 of 4 pairs \(50%\) have an empty side, more than 10%"):
        list(read_pairs(files))


def test_files_that_hold_nothing_or_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="there are no pairs"):
        list(read_pairs(two(tmp_path, "", "")))
    with pytest.raises(TextError, match=r"missing\.tsv cannot be read"):
        list(read_pairs(str(tmp_path / "missing.tsv")))
