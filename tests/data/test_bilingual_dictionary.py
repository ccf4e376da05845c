import gzip
from collections import Counter
from pathlib import Path

import pytest

from lingraft.data.bilingual_dictionary import read_word_pairs, word_pairs_or_errors
from lingraft.data.parallel_text import DUPLICATE, EMPTY
from lingraft.errors import TextError
from tests import dictionaries

LANGUAGES = "en", "de"


def words(file: Path | str) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_word_pairs(str(file), LANGUAGES)]


def errors(file: Path) -> list[str]:
    return [
        str(found) for found in word_pairs_or_errors(str(file), LANGUAGES, Counter()) if isinstance(found, TextError)
    ]


@pytest.mark.parametrize("between", [" ", "\t"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_word_and_its_translation_a_line(between: str, compressed: bool, tmp_path: Path) -> None:
    text = f"sol{between}zun\nsol{between}zon\nlun{between}mun\n".encode()
    file = tmp_path / ("en-xx.txt.gz" if compressed else "en-xx.txt")
    file.write_bytes(gzip.compress(text) if compressed else text)
    assert words(file) == [("sol", "zun"), ("sol", "zon"), ("lun", "mun")]


def test_phrases_stand_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("sol ve lun\tzun ap mun\nlun\tmun\n")
    assert words(tmp_path / "words") == [("sol ve lun", "zun ap mun"), ("lun", "mun")]


@pytest.mark.parametrize("header", ["English\tGerman", "de en", "source\ttarget"])
def test_a_line_of_column_names_is_left_out_and_counted_in_either_order(header: str, tmp_path: Path) -> None:
    (tmp_path / "words").write_text(f"{header}\nEnglish\tEnglisch\n")
    left_out: Counter[str] = Counter()
    [pair] = read_word_pairs(str(tmp_path / "words"), LANGUAGES, left_out)
    assert (pair.source, pair.target) == ("English", "Englisch")
    assert [(reason[:20], count) for reason, count in left_out.items()] == [("line of column names", 1)]


def test_lines_that_are_no_pair_are_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("sol zun\nlun\nti na po\nmar\ttal\tkal\nsol zun\n")
    found = errors(tmp_path / "words")
    places = [message.split(":")[0] for message in found]
    assert places == [f"{tmp_path / 'words'}, line {line}" for line in (2, 3, 4)]
    assert "'ti na po' is no pair of a word and its translation" in found[1]


def test_empty_sides_and_repetitions_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [f"sol{number}\tzun{number}\n" for number in range(20)]
    (tmp_path / "words").write_text("".join([*lines, "lun\t\n", *lines[:3]]))
    left_out: Counter[str] = Counter()
    assert len([*read_word_pairs(str(tmp_path / "words"), LANGUAGES, left_out)]) == 20
    assert left_out == {EMPTY: 1, DUPLICATE: 3}
    (tmp_path / "words").write_text("sol\tzun\nlun\t\n")
    with pytest.raises(TextError, match=r"1 of 2 pairs \(50%\) have an empty side"):
        words(tmp_path / "words")


ENTRIES = {
    "Sol /sˈɒl/": "zun, zon; big zun",
    "lun /lˈʌn/, /lˈuːn/": "\nmun",
    "mar, maro /mˈaː/": "1. (naut.) tal. mar ti zaso kala\n2. kal <fem> [Br.] {pl}",
    "kip sb. /kˈɪp/": 'jdn./etw. rem <v, trans>\n         Note: zaso\n      "kip ti"  - rem ap\n   Synonyms: {lat}\n',
    "zip‐lo / zilo /zˈɪp/ (ZL /zˈɛl/)": "zep‐al\n see: {zip}",
    "nil /nˈɪl/": " see: {lun}",
}


@pytest.mark.parametrize("named", [".", "freedict-xxa-xxb.index", "freedict-xxa-xxb.dict.dz"])
def test_freedict_lists_translations_by_sense_without_what_is_said_about_them(named: str, tmp_path: Path) -> None:
    left_out: Counter[str] = Counter()
    folder = dictionaries.freedict(tmp_path, ENTRIES)
    found = [(pair.source, pair.target) for pair in read_word_pairs(str(folder / named), LANGUAGES, left_out)]
    assert found == [
        *[("Sol", "zun"), ("Sol", "zon"), ("Sol", "big zun")],
        ("lun", "mun"),
        *[("mar", "tal"), ("mar", "kal"), ("maro", "tal"), ("maro", "kal")],
        ("kip", "rem"),
        ("zip-lo", "zep-al"),
    ]
    assert left_out == {EMPTY: 1}


def test_headwords_that_share_an_entry_give_its_pairs_once(tmp_path: Path) -> None:
    index = dictionaries.freedict(tmp_path, {"sol /sˈɒl/": "zun"}) / "freedict-xxa-xxb.index"
    about, entry = index.read_text().splitlines(keepends=True)
    index.write_text(about + entry + entry.replace("sol", "the sol"))
    assert [
        (pair.source, pair.target)
        for pair in word_pairs_or_errors(str(tmp_path), LANGUAGES, Counter())
        if not isinstance(pair, TextError)
    ] == [("sol", "zun")]


def test_a_dictionary_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = dictionaries.freedict(tmp_path / "a", ENTRIES)
    index = folder / "freedict-xxa-xxb.index"
    index.write_text(index.read_text() + "sol\tz9z9\tB\nlun\t-\tB\n")
    far, no_number = errors(folder)
    assert f"{index}, line 8: 'sol\\tz9z9\\tB' points at no entry of {folder}" in far
    assert "'-' is no number" in no_number
    (folder / "freedict-xxa-xxb.dict.dz").write_bytes((folder / "freedict-xxa-xxb.dict.dz").read_bytes()[:-30])
    assert "is truncated" in errors(folder)[0]
    dictionaries.freedict(folder, ENTRIES, "other")
    assert "holds 2 dictionaries of dictd, ['freedict-xxa-xxb', 'other']" in errors(folder)[0]
    (folder / "other.index").unlink()
    assert "must hold other.index and other.dict.dz" in errors(folder / "other.dict.dz")[0]


def test_what_is_no_dictionary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert "cannot be read" in errors(tmp_path / "missing.txt")[0]
    assert "holds 0 dictionaries" in errors(tmp_path)[0]
    with pytest.raises(TextError, match="there are no pairs"):
        words(tmp_path / "empty")
