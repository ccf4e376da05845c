import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from lingraft.data import documents, records
from lingraft.data.documents import (
    DIVIDED_DOCUMENTS,
    STRAY_BLANKS,
    Document,
    documents_or_errors,
    hash_name,
    text_files,
)
from lingraft.errors import TextError, raise_errors
from tests.read_text import read_documents, read_files


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _texts(source: Path) -> list[str]:
    return [document.text for document in read_documents(source, "de")]


@pytest.mark.parametrize(("allowed", "texts"), [(30, ["Eins.\nZwei.", "Drei."]), (8, ["Eins.", "Zwei.", "Drei."])])
def test_a_blank_line_parts_documents_if_it_comes_early_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, texts: list[str]
) -> None:
    monkeypatch.setattr(documents, "_LOOK_AHEAD", allowed)
    _write(tmp_path / "de.txt", "Eins.\nZwei.\n\nDrei.\n")
    assert _texts(tmp_path) == texts


def test_a_stray_blank_line_does_not_make_one_document_of_thousands_of_lines(tmp_path: Path) -> None:
    lines = [f"Satz {number}." for number in range(5000)]
    _write(tmp_path / "de.txt", "\n".join([*lines[:7], "", *lines[7:]]))
    notes: Counter[str] = Counter()
    assert [document.text for document in read_documents(tmp_path, "de", notes)] == lines
    assert notes == {STRAY_BLANKS: 1}


@pytest.mark.parametrize(("length", "documents"), [(100, 50), (101, 5050)])
def test_blank_lines_separate_documents_of_a_hundred_lines_or_less_on_average(
    tmp_path: Path, length: int, documents: int
) -> None:
    page = "Satz.\n" * length
    _write(tmp_path / "de.txt", "\n".join([page] * 50))
    assert len(_texts(tmp_path)) == documents


def test_a_document_that_is_too_long_is_divided_at_a_line_and_stays_in_one_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_DOCUMENT_CHARACTERS", 20)
    _write(
        tmp_path / "de.txt", "Kurz.\n\nZeile eins.\nZeile zwei.\nDrei.\nEine Zeile, die allein zu lang ist.\n\nEnde.\n"
    )
    notes: Counter[str] = Counter()
    found = list(read_documents(tmp_path, "de", notes))
    parts = ["Zeile eins.", "Zeile zwei.\nDrei.", "Eine Zeile, die allein zu lang ist."]
    assert [document.text for document in found] == ["Kurz.", *parts, "Ende."]
    assert {document.name for document in found[1:4]} == {hash_name(parts[0])}
    assert notes[DIVIDED_DOCUMENTS] == 1


@pytest.mark.parametrize("name", ["de.txt", "de.jsonl", "de/a.txt", "de/sport/a.txt"])
def test_a_line_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in (documents, records):
        monkeypatch.setattr(module, "RECORD_BYTES", 20)
    _write(tmp_path / name, '{"text": "1"}\n' + "x" * 21)
    with pytest.raises(TextError, match=rf"{name}, line 2: the line has more than 20 bytes"):
        _texts(tmp_path)


def test_jsonl_takes_name_and_label_or_names_by_content(tmp_path: Path) -> None:
    rows = [{"text": " Eins ", "name": "page/1", "label": "sport"}, {"text": "Zwei"}]
    _write(tmp_path / "de.jsonl", "\n\n".join(map(json.dumps, rows)) + "\n")
    assert list(read_documents(tmp_path, "de")) == [
        Document("page/1", "Eins", "sport"),
        Document(hash_name("Zwei"), "Zwei", None),
    ]


def test_other_keys_of_jsonl_are_not_read(tmp_path: Path) -> None:
    _write(tmp_path / "de.jsonl", '{"url": "https://x.org", "text": "Eins", "meta": {"id": 3}, "timestamp": null}\n')
    assert list(read_documents(tmp_path, "de")) == [Document(hash_name("Eins"), "Eins")]


def test_a_folder_gives_one_document_a_text_file_labelled_by_its_first_sub_folder(tmp_path: Path) -> None:
    _write(tmp_path / "de/sport/2024/v1.2.txt", "Tor!\n\nNoch eins.\n")
    _write(tmp_path / "de/sport/c.jsonl", '{"text": "Eins", "name": "1", "label": "wetter"}\n')
    _write(tmp_path / "de/top.txt", "Ohne Label.\n")
    _write(tmp_path / "de/.git/a.txt", "hidden")
    (tmp_path / "de/sport/b.txt.gz").write_bytes(gzip.compress(b"Ball.\n"))
    assert list(read_documents(tmp_path, "de")) == [
        Document("sport/2024/v1.2", "Tor!\n\nNoch eins.", "sport"),
        Document("sport/b", "Ball.", "sport"),
        Document("1", "Eins", "wetter"),
        Document("top", "Ohne Label.", None),
    ]


def test_a_folder_without_sub_folders_is_read_as_its_files_are(tmp_path: Path) -> None:
    _write(tmp_path / "de/1.txt", "Eins.\nZwei.\n")
    _write(tmp_path / "de/2.txt", "Drei,\nvier.\n\nFünf.\n")
    _write(tmp_path / "de/3.jsonl", '{"text": "Sechs."}\n')
    found = list(read_documents(tmp_path, "de"))
    assert found == list(read_files([tmp_path / "de/1.txt", tmp_path / "de/2.txt", tmp_path / "de/3.jsonl"]))
    assert [document.text for document in found] == ["Eins.", "Zwei.", "Drei,\nvier.", "Fünf.", "Sechs."]


def test_a_labelled_file_that_is_too_long_is_divided_and_keeps_its_label(tmp_path: Path) -> None:
    _write(tmp_path / "de/sport/a.txt", f"{'Tor! ' * 20}\n" * 11_000)
    notes: Counter[str] = Counter()
    found = list(read_documents(tmp_path, "de", notes))
    assert [(document.name, document.label) for document in found] == [("sport/a", "sport")] * 2
    assert sum(document.text.count("Tor!") for document in found) == 220_000
    assert notes[DIVIDED_DOCUMENTS] == 1


def test_a_folder_without_files_asks_for_text_by_its_option(tmp_path: Path) -> None:
    [error] = documents_or_errors([tmp_path], Counter())
    assert str(error).startswith(f"{tmp_path} holds no files. Give files of text (--text), whose names end in .txt")


@pytest.mark.parametrize("name", ["de/a.pdf", "de/a.txt.bz2", "de/a", "de"])
def test_other_formats_alone_are_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name, "Eins")
    with pytest.raises(TextError, match=r"holds no .*\.txt, \.md, .*\.html, .*\.jsonl, \.parquet, \.csv, \.tsv"):
        _texts(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Eins", "not JSON"),
        ('["Eins"]', "list instead of an object"),
        ('{"label": "a"}', r"no key 'text', only \['label'\]"),
        ('{"text": 7}', "'text' must be a string, not 7"),
        ('{"text": "a", "label": 3}', "'label' must be a string, not 3"),
        ('{"text": "a", "name": null}', "'name' must be a string, not None"),
        ('{"text": "a", "label": " "}', "'label' is empty"),
        ('{"text": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_a_wrong_jsonl_line_is_named_by_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    _write(tmp_path / "de.jsonl", f'{{"text": "Fine"}}\n{line}\n')
    with pytest.raises(TextError, match=rf"de\.jsonl, line 2: .*{message}"):
        _texts(tmp_path)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("\n\nEins,\nzwei.\n \nDrei.\n\n\n", ["Eins,\nzwei.", "Drei."]),
        ("\nEins.\n Zwei. \nDrei.\n\n", ["Eins.", "Zwei.", "Drei."]),
    ],
    ids=["blank lines", "lines"],
)
def test_blank_lines_separate_documents_or_else_line_ends_do(tmp_path: Path, text: str, texts: list[str]) -> None:
    _write(tmp_path / "de.txt", text)
    assert _texts(tmp_path) == texts


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["en/fr.txt"], r"no folder .*source to read text from"),
        (["source/fr.txt"], r"no text for language 'de', only \['fr.txt'\]. Expected one of"),
        (["source/de.txt", "source/de/a.txt"], r"more than once: \['de', 'de.txt'\]"),
        (["source/de/.hidden"], "de holds no files"),
    ],
)
def test_a_language_is_one_file_or_folder_that_is_not_empty(tmp_path: Path, files: list[str], words: str) -> None:
    for name in files:
        _write(tmp_path / name, "Eins")
    with pytest.raises(TextError, match=words):
        _texts(tmp_path / "source")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"no file or folder .*absent\.txt"):
        list(read_files([tmp_path / "absent.txt"]))


def _write_tables(folder: Path, column: str) -> list[str]:
    """The same two texts in each format of records; the paths of the files."""
    texts = ['Er sagte: "Ja",\ndann ging er.', "Zwei; drei"]
    _write(folder / "a.csv", f'id,{column},label\n1,"{texts[0].replace(chr(34), chr(34) * 2)}",x\n2,{texts[1]},\n')
    _write(folder / "b.CSV", f'\ufeff{column};id\r\n"{texts[0].replace(chr(34), chr(34) * 2)}";1\r\n"{texts[1]}";2\r\n')
    _write(folder / "c.jsonl", "".join(json.dumps({column: text}) + "\n" for text in texts))
    table = pyarrow.table({"id": [1, 2], column: texts})
    pyarrow.parquet.write_table(table, folder / "d.parquet")
    _write(folder / "e.tsv", f'id\t{column}\n1\tEr sagte: "Ja"\n2\t"Zwei; drei"\n')
    (folder / "f.tsv.xz").write_bytes(lzma.compress(f"{column}\nEins\n".encode()))
    return texts


@pytest.mark.parametrize("column", ["text", "body"])
def test_records_of_all_formats_have_a_column_of_text(tmp_path: Path, column: str) -> None:
    first, second = _write_tables(tmp_path, column)
    found = list(raise_errors(documents_or_errors([tmp_path], Counter(), column=column)))
    raw = ['Er sagte: "Ja"', '"Zwei; drei"', "Eins"]
    assert [document.text for document in found] == [*[first, second] * 4, *raw]
    assert [document.label for document in found[:3]] == ["x", None, None]


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("b.CSV", r"\['body', 'id'\]"),
        ("a.csv", r"\['id', 'body', 'label'\]"),
        ("d.parquet", r"\['id', 'body'\]"),
        ("e.tsv", r"\['id', 'body'\]"),
    ],
)
def test_a_missing_column_is_told_with_those_that_there_are(tmp_path: Path, name: str, has: str) -> None:
    _write_tables(tmp_path, "body")
    with pytest.raises(TextError, match=rf"{name}.* has no column 'text'; it has {has}\. Name the one .*--text-column"):
        list(read_files([tmp_path / name]))


def test_a_row_with_other_columns_than_the_header_and_open_quotation_marks_are_told_by_line(tmp_path: Path) -> None:
    _write(tmp_path / "a.csv", "id,text\n1,Eins\n2,Zwei,drei\n3,Vier\n")
    found = list(documents_or_errors([tmp_path / "a.csv"], Counter()))
    assert [each.text for each in found if isinstance(each, Document)] == ["Eins", "Vier"]
    [message] = [str(each) for each in found if not isinstance(each, Document)]
    assert message.startswith(f"{tmp_path / 'a.csv'}, line 3: 3 columns, where the first line has 2 (['id', 'text'])")
    _write(tmp_path / "a.csv", 'id,text\n1,"Eins\n2,Zwei\n')
    with pytest.raises(TextError, match=r"a\.csv is no CSV up to line 3: unexpected end of data"):
        list(read_files([tmp_path / "a.csv"]))


def test_pages_of_a_folder_are_documents_named_by_their_paths(tmp_path: Path) -> None:
    _write(tmp_path / "de/eins.html", "<p>Eins</p><p>zwei</p>")
    _write(tmp_path / "de/zwei.md", "# Drei\n\nvier\nfünf\n")
    _write(tmp_path / "de/drei.txt", "Sechs.\nSieben.\n")
    assert list(read_documents(tmp_path, "de")) == [
        *(Document(hash_name(text), text) for text in ("Sechs.", "Sieben.")),
        Document("eins", "Eins\nzwei"),
        Document("zwei", "Drei\nvier fünf"),
    ]
    _write(tmp_path / "de/a/eins.htm", "<p>Acht</p>")
    assert Document("a/eins", "Acht", "a") in list(read_documents(tmp_path, "de"))


def test_files_of_other_formats_in_a_folder_are_left_out_and_counted(tmp_path: Path) -> None:
    for name in ("a.txt", "b.pdf", "c.pdf", "sub.d/e.PNG", "Makefile"):
        _write(tmp_path / "de" / name, "Eins.")
    notes: Counter[str] = Counter()
    assert [document.text for document in read_documents(tmp_path, "de", notes)] == ["Eins."]
    [(note, count)] = (+notes).items()
    assert note.startswith("files left out (2 of .pdf, 1 of Makefile, 1 of .PNG), whose names end in none of .txt")
    assert count == 4
    assert text_files(tmp_path / "de") == [tmp_path / "de/a.txt"]


def test_a_page_that_is_too_long_is_divided_between_paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_DOCUMENT_CHARACTERS", 12)
    _write(tmp_path / "de/a.html", "<p>Eins zwei.<p>Drei vier.")
    found = list(read_documents(tmp_path, "de"))
    assert [(document.name, document.text) for document in found] == [("a", "Eins zwei."), ("a", "Drei vier.")]
