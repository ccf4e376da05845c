import gzip
import html
import json
import lzma
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from lingraft.data.parallel_text import DUPLICATE, EMPTY, Pair, pairs_or_errors, read_pairs
from lingraft.errors import TextError

LANGUAGES = "en", "de"
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def errors(files: str | tuple[str, str]) -> list[str]:
    return [str(found) for found in pairs_or_errors(files, LANGUAGES, Counter()) if not isinstance(found, Pair)]


def sides(files: str | tuple[str, str], languages: tuple[str, str] = LANGUAGES) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(files, languages)]


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
    assert sides(one) == sides(each) == expected
    assert [pair.place for pair in read_pairs(one, LANGUAGES)][1] == f"{one}, line 2"
    assert [pair.place for pair in read_pairs(each, LANGUAGES)][1] == f"{each[0]} and {each[1]}, line 2"


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
    assert "If each language has a file of its own, give both, the source's first (--pairs twice; a list in" in message


def test_empty_sides_and_repetitions_are_left_out_and_counted(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(20)]
    files = two(tmp_path, "\n".join([*numbers, "lun", "7"]), "\n".join([*numbers, " ", "7"]))
    left_out: Counter[str] = Counter()
    assert len([*read_pairs(files, LANGUAGES, left_out)]) == 20
    assert left_out == {EMPTY: 1, DUPLICATE: 1}


def test_text_whose_pairs_are_often_empty_is_refused_with_counts(tmp_path: Path) -> None:
    files = two(tmp_path, "a\nb\nc\nd\n", "w\n\n\nz\n")
    with pytest.raises(TextError, match=r"a\.xx: 2 of 4 pairs \(50%\) have an empty side, more than 10%"):
        sides(files)


def test_files_that_hold_nothing_or_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"there are no pairs.* \(--pairs, --dictionary\)"):
        sides(two(tmp_path, "", ""))
    with pytest.raises(TextError, match=r"missing\.tsv cannot be read"):
        sides(str(tmp_path / "missing.tsv"))


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


PAIRS = [("the old mill", "die alte Mühle"), ('he said: "yes"', 'er sagte: "ja", laut'), ("Sun", "Sonne")]


def tmx(units: str, head: str = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">') -> str:
    body = f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{body}'


def unit(**texts: str) -> str:
    inner = "".join(f'<tuv xml:lang="{tag.replace("_", "-")}"><seg>{text}</seg></tuv>' for tag, text in texts.items())
    return f"<tu><note>nein</note>{inner}</tu>\n"


def test_every_layout_holds_the_same_pairs(tmp_path: Path) -> None:
    named = [{"source": source, "target": target, "score": 1.0} for source, target in PAIRS]
    by_tag = [{"id": "7", "source": "web", "translation": {"de": target, "en": source}} for source, target in PAIRS]
    quoted = [[cell.replace('"', '""') for cell in pair] for pair in PAIRS]
    files = {
        "a.tsv": "".join(f"{source}\t{target}\n" for source, target in PAIRS),
        "b.csv": "".join(f'"{source}","{target}"\r\n' for source, target in quoted),
        "c.csv": "".join(f'"{source}";"{target}"\n' for source, target in quoted),
        "d.jsonl": "".join(json.dumps(each) + "\n" for each in named),
        "e.jsonl": "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in by_tag),
        "f.tmx": tmx("".join(unit(de_DE=html.escape(target), en_US=html.escape(source)) for source, target in PAIRS)),
    }
    for name, text in files.items():
        assert sides(write(tmp_path, name, text)) == PAIRS, name
    (tmp_path / "g.tmx.xz").write_bytes(lzma.compress(files["f.tmx"].replace("UTF-8", "UTF-16").encode("utf-16")))
    assert sides(str(tmp_path / "g.tmx.xz")) == PAIRS


@pytest.mark.parametrize(
    "header",
    [
        ("en", "de"),
        ("EN", "de-DE"),
        ("eng", "deu"),
        ("English", "German"),
        ("Englisch", "Deutsch"),
        ("source", "target"),
        ("src", "tgt"),
        ("sentence1", "sentence2"),
        ("sentence_en", "sentence_de"),
        ("text", "translation"),
        ("english", "non_english"),
    ],
)
@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ","), ("a.csv", ";")])
def test_a_line_of_column_names_is_left_out_and_counted(
    tmp_path: Path, header: tuple[str, str], name: str, between: str
) -> None:
    lines = [header, ("sun", "Sonne"), header]
    file = write(tmp_path, name, "\ufeff" + "".join(f"{one}{between}{other}\n" for one, other in lines))
    left_out: Counter[str] = Counter()
    pairs = [(pair.source, pair.target) for pair in read_pairs(file, LANGUAGES, left_out)]
    assert pairs == [("sun", "Sonne"), header]
    assert left_out == {f"line of column names ({header[0]!r} and {header[1]!r})": 1}


@pytest.mark.parametrize(
    "pair",
    [
        ("English", "Englisch"),
        ("German", "Deutsch"),
        ("source", "Quelle"),
        ("Text", "Text"),
        ("Text 1", "Text 1"),
        ("translation", "Übersetzung"),
        ("en", "fr"),
        ("sentence", "Satz"),
    ],
)
def test_a_first_pair_of_words_that_name_languages_or_columns_is_kept(tmp_path: Path, pair: tuple[str, str]) -> None:
    assert sides(write(tmp_path, "a.tsv", "\t".join(pair))) == [pair]


@pytest.mark.parametrize("first", ["A title, as text.;Ein Titel.", "One; two.;Eins, zwei.", "en;de"])
def test_what_stands_between_cells_of_csv_follows_from_more_than_the_first_line(tmp_path: Path, first: str) -> None:
    rows = "".join(f"Yes, {number}, it is.;Ja, {number}.\n" for number in range(20))
    file = write(tmp_path, "a.csv", f"{first}\n{rows}")
    found = [pair for pair in pairs_or_errors(file, LANGUAGES, Counter()) if isinstance(pair, Pair)]
    assert found[-20:][0][:2] == ("Yes, 0, it is.", "Ja, 0.")
    assert all("2, source and target with a comma or semicolon between them" in message for message in errors(file))


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_of_more_columns_those_are_read_that_are_named(tmp_path: Path, name: str, between: str) -> None:
    rows = [("id", "de", "score", "source", "en"), ("1", "Sonne", "0.5", "web", "sun"), ("2", "Mond")]
    file = write(tmp_path, name, "".join(between.join(row) + "\n" for row in rows))
    assert [
        (each.source, each.target) for each in pairs_or_errors(file, LANGUAGES, Counter()) if isinstance(each, Pair)
    ] == [("sun", "Sonne")]
    [message] = errors(file)
    assert message.startswith(f"{file}, line 3: 2 columns instead of the 5 that the first has")


@pytest.mark.parametrize("header", [("de", "en"), ("target", "source"), ("Deutsch", "Englisch")])
def test_columns_that_are_named_in_the_wrong_order_are_refused(tmp_path: Path, header: tuple[str, str]) -> None:
    file = write(tmp_path, "a.tsv", "\t".join(header) + "\nSonne\tsun\n")
    [message] = errors(file)
    assert message == (
        f"{file}, line 1: the columns are {header[0]!r} and {header[1]!r}. Give the source language's first."
    )


def test_languages_of_a_memory_are_found_by_their_tags(tmp_path: Path) -> None:
    units = [
        unit(en_US="sun", en_GB="sol", de="Sonne", fr="soleil"),
        unit(en="moon", fr="lune"),
        '<tu><tuv lang="EN"><seg>press <bpt i="1">&lt;b&gt;<sub>no</sub></bpt>OK<ept i="1">&lt;/b&gt;</ept>\n'
        '<hi>now</hi><ph/></seg></tuv><tuv lang="DEU"><seg>auf&nbsp;OK</seg></tuv></tu>',
    ]
    file = write(tmp_path, "a.tmx", tmx("\n".join(units)))
    left_out: Counter[str] = Counter()
    found = [*read_pairs(file, LANGUAGES, left_out)]
    assert [(pair.source, pair.target) for pair in found] == [("sun", "Sonne"), ("press OK now", "auf OK")]
    assert found[0].place == f"{file}, unit 1"
    assert left_out == {"units without 'en' or 'de'": 1}
    [message] = [str(each) for each in pairs_or_errors(file, ("en", "tr"), Counter())]
    assert (
        "has no units in both 'en' and 'tr': its languages are ['DEU', 'EN', 'de', 'en', 'en-GB', 'en-US', 'fr']"
        in message
    )


_BOMB = "".join(f'<!ENTITY {b} "{f"&{a};" * 99}">' for a, b in pairwise("abcdef"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            tmx(unit(en="&f;", de="x"), f'<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">{_BOMB}]>'),
            "is damaged or no TMX: limit on input amplification factor",
        ),
        (
            tmx(unit(en="&x;", de="x"), '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]>'),
            "is damaged or no TMX: undefined entity",
        ),
        (tmx(unit(en="&foo;", de="x")), "is damaged or no TMX: undefined entity"),
        (tmx(unit(en="sun", de="Sonne"))[:-20], "is damaged or no TMX: unclosed token: line 2"),
        (tmx("").replace("UTF-8", "klingon"), "is damaged or no TMX: unknown encoding: klingon"),
        (tmx("").replace("UTF-8", "shift_jis"), "is damaged or no TMX: multi-byte encodings are not supported"),
        ("sun\tSonne\n", "is damaged or no TMX: syntax error: line 1"),
        ("<xliff/>", "the file is <xliff>, and not <tmx>"),
        (tmx(unit(en="<hi>" * 9999 + "</hi>" * 9999, de="x")), "is damaged or no TMX: maximum recursion depth"),
        (tmx(""), "there are no pairs"),
    ],
)
def test_a_memory_that_is_damaged_or_dangerous_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        sides(write(tmp_path, "a.tmx", text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "list instead of an object"),
        (
            '{"source": "sun"}',
            "no key 'target', only ['source']. Name the texts 'source' and 'target', or by their languages",
        ),
        ('{"translation": {"en": "sun", "fr": "soleil"}}', "no key 'target', only ['en', 'fr']. Name the texts"),
        ('{"en": "sun", "de": null}', "['sun', None] are not two texts"),
        ('{"en": "sun", "de": "\\ud800"}', "are not two texts"),
    ],
)
def test_an_object_without_two_texts_is_told_by_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    file = write(tmp_path, "a.jsonl", f'{{"en": "sun", "de": "Sonne"}}\n{line}\n')
    [found] = errors(file)
    assert found.startswith(f"{file}, line 2: ")
    assert message in found
