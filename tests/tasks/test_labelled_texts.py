import json
from pathlib import Path
from typing import Any

import pytest

from lingraft.data.documents import Document
from lingraft.errors import TextError, raise_errors
from lingraft.tasks.labelled_texts import Example, documents_as_examples, examples_of_rows, examples_or_errors

XNLI_HEADER = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\t"
    "sentence1_tokenized\tsentence2_tokenized\tmatch"
)
NLI_NAMES = ["entailment", "neutral", "contradiction"]


def xnli_row(language: str, label: str, premise: str, hypothesis: str) -> str:
    parses, about, votes = [""] * 4, ["1", "1", "facetoface"], [label] * 5
    texts = [premise, hypothesis]
    return "\t".join([language, label, *parses, *texts, *about, *votes, *texts, "True"])


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_examples(path: Path, language: str, pairs: bool) -> list[Example]:
    return list(raise_errors(examples_or_errors(path, language, pairs)))


def found(path: Path, language: str = "de", pairs: bool = True) -> list[tuple[tuple[str, ...], str]]:
    return [(example.texts, example.label) for example in read_examples(path, language, pairs)]


def test_xnlis_own_file_gives_the_rows_of_the_language(tmp_path: Path) -> None:
    path = write(
        tmp_path / "xnli.dev.tsv",
        XNLI_HEADER,
        xnli_row("ar", "neutral", "كتب رسالة", "هو كاتب"),
        xnli_row("th", "contradiction", "เขาไปแล้ว", "เขายังอยู่"),
        xnli_row("ar", "entailment", "كتب رسالة", "كتب شيئا"),
    )
    assert found(path, "ar") == [(("كتب رسالة", "هو كاتب"), "neutral"), (("كتب رسالة", "كتب شيئا"), "entailment")]
    assert found(path, "th") == [(("เขาไปแล้ว", "เขายังอยู่"), "contradiction")]
    with pytest.raises(TextError, match=r"no rows in 'sw': its column 'language' holds \['ar', 'th'\]"):
        found(path, "sw")


def test_the_translated_training_files_other_name_of_a_class_is_the_same_class(tmp_path: Path) -> None:
    path = write(tmp_path / "multinli.train.de.tsv", "premise\thypo\tlabel", "Ja.\tNein.\tcontradictory")
    assert found(path) == [(("Ja.", "Nein."), "contradiction")]


def test_pairs_without_a_header_are_first_second_label(tmp_path: Path) -> None:
    path = write(tmp_path / "dev-zh.tsv", '他说："不"。\t他没有同意。\tentailment', 'a "b\tc\tneutral')
    assert found(path, "zh") == [(('他说："不"。', "他没有同意。"), "entailment"), (('a "b', "c"), "neutral")]


def test_pawsx_comes_with_a_header_or_without_one_or_without_ids(tmp_path: Path) -> None:
    rows = ["1\tEins zwei.\tZwei eins.\t0", "2\tNS\tNS\t0"]
    expected = [(("Eins zwei.", "Zwei eins."), "0"), (("NS", "NS"), "0")]
    assert found(write(tmp_path / "test_2k.tsv", "id\tsentence1\tsentence2\tlabel", *rows)) == expected
    assert found(write(tmp_path / "bare.tsv", *rows)) == expected
    assert found(write(tmp_path / "test-de.tsv", *(row.split("\t", 1)[1] for row in rows))) == expected


def test_texts_come_with_a_header_or_without(tmp_path: Path) -> None:
    rows = ["नमस्ते\tgreeting", "", "कल मिलेंगे\tfarewell"]
    expected = [(("नमस्ते",), "greeting"), (("कल मिलेंगे",), "farewell")]
    assert found(write(tmp_path / "bare.tsv", *rows), pairs=False) == expected
    assert found(write(tmp_path / "headed.tsv", "text\tlabel", *rows), pairs=False) == expected
    assert found(write(tmp_path / "sst.tsv", "sentence\tlabel", *rows), pairs=False) == expected
    swapped = ["\t".join(reversed(row.split("\t"))) for row in rows]
    assert found(write(tmp_path / "swapped.txt", "label\ttext", *swapped), pairs=False) == expected


@pytest.mark.parametrize(
    ("header", "pairs"),
    [("review\tlabel", False), ("Sentence\tLabel", False), ("a\tb\tlabel", True), ("q1\tq2\tlabel", True)],
)
def test_a_line_of_other_column_names_is_refused_and_not_taken_for_an_example(
    tmp_path: Path, header: str, pairs: bool
) -> None:
    path = write(tmp_path / "dev.tsv", header, "good\tbad\t1" if pairs else "good\t1")
    with pytest.raises(TextError, match=r"dev\.tsv, line 1: \[.*\] seem to be the columns' names, .* Expected"):
        found(path, pairs=pairs)


@pytest.mark.parametrize("keys", [("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2")])
def test_jsonl_has_a_pair_under_either_names(tmp_path: Path, keys: tuple[str, str]) -> None:
    row = {keys[0]: " Один. ", keys[1]: "Два.", "label": 1, "idx": 7}
    assert found(write(tmp_path / "dev.jsonl", json.dumps(row))) == [(("Один.", "Два."), "1")]


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("dev.tsv", "a\tb", r"2 columns, \['a', 'b'\], of unknown meaning\. Expected sentence1 TAB sentence2"),
        ("dev.tsv", "a\tb\t ", "line 1: no label"),
        ("dev.csv", "a,b,c", r"neither a table \(\.tsv, \.txt\) nor JSONL"),
        ("dev.jsonl", "{", "line 1: not JSON"),
        ("dev.jsonl", '{"premise": "a", "label": "b"}', "no column 'hypothesis' or 'hypo' or 'sentence2'"),
        ("dev.jsonl", '{"premise": "a", "hypothesis": "b"}', "no column 'gold_label' or 'label'"),
        ("dev.jsonl", '{"premise": "a", "hypothesis": 1, "label": "b"}', "'hypothesis' must hold a text, not 1"),
        ("dev.jsonl", '{"premise": "a", "hypothesis": "\\ud800", "label": "b"}', "half a surrogate pair"),
        ("dev.jsonl", '{"premise": "a", "hypothesis": "b", "label": 0.5}', "a name or a whole number, not 0.5"),
        ("dev.jsonl", '{"premise": "a", "hypothesis": "b", "gold_label": "-"}', "annotators did not agree"),
        ("dev.jsonl", "", "holds no examples"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, line: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        found(write(tmp_path / name, line))
    with pytest.raises(TextError, match=r"absent\.tsv cannot be read"):
        found(tmp_path / "absent.tsv")


def test_class_numbers_of_a_dataset_become_names() -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": number} for number in (2, 0)]
    examples = examples_of_rows(rows, "xnli", NLI_NAMES, pairs=True)
    assert [example.label for example in examples] == ["contradiction", "entailment"]
    assert [example.label for example in examples_of_rows(rows, "own", [], pairs=True)] == ["2", "0"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"premise": {"ar": "a", "bg": "b"}, "hypothesis": {}, "label": 0},
            "several languages at once .*configuration",
        ),
        ({"premise": "a", "hypothesis": "b", "label": -1}, "label -1 is none of the dataset's 3 classes"),
        ({"premise": "a", "hypothesis": "b", "label": None}, "no label"),
        (
            {"text": "a", "label": 0},
            r"xnli, row 0: no column 'premise' or 'sentence1' or 'text1', only \['label', 'text'\]",
        ),
    ],
)
def test_a_datasets_row_that_is_no_example_is_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(TextError, match=message):
        list(examples_of_rows([row], "xnli", NLI_NAMES, pairs=True))


def test_documents_bring_their_labels() -> None:
    (example,) = documents_as_examples([Document("page", "words", "a")])
    assert (example.place, example.texts, example.label) == ("document 'page'", ("words",), "a")
    with pytest.raises(TextError, match="document 'page': no label"):
        documents_as_examples([Document("page", "words")])
