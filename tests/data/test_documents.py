import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from lingraft.data import documents
from lingraft.data.documents import DIVIDED_DOCUMENTS, STRAY_BLANKS, Document, hash_name
from lingraft.errors import TextError
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
    monkeypatch.setattr(documents, "_LINE_BYTES", 20)
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


def test_a_labelled_file_that_is_a_corpus_rather_than_a_document_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "de/sport/a.txt", f"{'Tor! ' * 20}\n" * 11_000)
    with pytest.raises(TextError, match=r"de/sport/a\.txt has more than 1,048,576 characters.*\[text\] kind = 'files'"):
        _texts(tmp_path)


@pytest.mark.parametrize("name", ["de/a.pdf", "de/a.txt.bz2", "de/a", "de"])
def test_a_file_of_another_format_is_refused_not_skipped(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name, "Eins")
    with pytest.raises(TextError, match=r"neither plain text nor JSONL"):
        _texts(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Eins", "not JSON"),
        ('["Eins"]', "list instead of an object"),
        ('{"label": "a"}', r"no key 'text', only \['label'\]"),
        ('{"text": "a", "lable": "b"}', "unknown key 'lable'. Allowed: text, name, label"),
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
