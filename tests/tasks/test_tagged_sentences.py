from pathlib import Path
from typing import Any

import pytest

from lingraft.errors import TextError, raise_errors
from lingraft.tasks.tagged_sentences import Sentence, sentences_of_rows, sentences_or_errors, without_prefix

NAMES = ["O", "B-PER", "I-PER"]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read_sentences(path: Path, language: str) -> list[Sentence]:
    return without_prefix(list(raise_errors(sentences_or_errors(path))), language, path)


def found(path: Path, language: str = "de") -> list[list[tuple[str, str]]]:
    return [list(zip(each.words, each.tags, strict=True)) for each in read_sentences(path, language)]


def test_panx_has_a_word_and_its_tag_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "dev-zh.tsv", "北\tB-LOC\n京\tI-LOC\n\n\nقال\tO\nअनुल\tB-PER\n")
    assert found(path, "zh") == [[("北", "B-LOC"), ("京", "I-LOC")], [("قال", "O"), ("अनुल", "B-PER")]]
    assert [each.place for each in read_sentences(path, "zh")] == [f"{path}, line 1", f"{path}, line 5"]


def test_a_words_prefix_is_taken_off_where_all_have_it(tmp_path: Path) -> None:
    path = write(tmp_path / "dev", "de:In\tO\nde:Köln\tB-LOC\n\nde:de:\tO\n")
    assert found(path) == [[("In", "O"), ("Köln", "B-LOC")], [("de:", "O")]]
    with pytest.raises(TextError, match="is in 'de' by the prefix of its words, not in 'tr'"):
        found(path, "tr")


def test_conll_takes_the_first_and_the_last_column_and_leaves_out_document_marks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "eng.testb",
        "-DOCSTART- -X- O O\n\nWolff NNP B-NP I-PER\n, , O O\n\n-DOCSTART- -X- O O\n\nBonn  NNP B-NP I-LOC \n",
    )
    assert found(path, "en") == [[("Wolff", "I-PER"), (",", "O")], [("Bonn", "I-LOC")]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Köln\n", "line 1: 'Köln' has no tag"),
        ("In\tO\nKöln\tLOC\n", "line 2: 'LOC' is no tag"),
        ("Köln\tU-LOC\n", "'U-LOC' is no tag"),
        ("-DOCSTART- O\n\n", "holds no sentences"),
    ],
)
def test_a_word_without_a_proper_tag_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        found(write(tmp_path / "dev.tsv", text))


def test_a_first_column_that_counts_words_is_refused_and_not_taken_for_words(tmp_path: Path) -> None:
    rows = "1\tAnna\tB-PER\tO\n2\tlebt\tO\tO\n3\tin\tO\tO\n"
    for head, line in (("", 1), ("#\texample.org vom 01.02.2005 [2005-02-02]\n", 1)):
        path = write(tmp_path / "train.tsv", f"{head}{rows}")
        with pytest.raises(TextError, match=rf"line {line}: the first of 4 columns counts the words .* cut -f 2,3"):
            found(path)
    assert found(write(tmp_path / "bare.tsv", "1\tO\n2\tO\n")) == [[("1", "O"), ("2", "O")]]


def test_parts_of_speech_are_taken_where_every_word_is_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "test.tsv", "Köln\tPROPN\nist\tAUX\n")
    [sentence] = raise_errors(sentences_or_errors(path, named_entities=False))
    assert sentence.tags == ("PROPN", "AUX")
    with pytest.raises(TextError, match=r"'PROPN' is no tag of a named entity.* evaluation = 'words'"):
        found(path)
    entities = write(tmp_path / "ner.tsv", "Köln\tB-LOC\n")
    with pytest.raises(TextError, match="'B-LOC' is the tag of a named entity, and evaluation 'words'"):
        list(raise_errors(sentences_or_errors(entities, named_entities=False)))
    with pytest.raises(TextError, match="line 1: a word has an empty tag"):
        list(raise_errors(sentences_or_errors(write(tmp_path / "empty.tsv", "Köln\t\n"), named_entities=False)))
    rows = [{"tokens": ["Köln"], "ner_tags": ["B-LOC"], "pos_tags": ["PROPN"]}]
    assert [each.tags for each in sentences_of_rows(rows, "set", [], named_entities=False)] == [("PROPN",)]


def test_universal_dependencies_files_have_words_and_their_upos(tmp_path: Path) -> None:
    rest = "\t".join("_" * 6)
    lines = [
        "# sent_id = 1",
        f"1-2\tim\t_\t_\t{rest}",
        f"1\tin\tin\tADP\t{rest}",
        f"2\tdem\tder\tDET\t{rest}",
        f"2.1\tsehr\tsehr\tADV\t{rest}",
        f"3\tHafen\tHafen\tNOUN\t{rest}",
    ]
    path = write(tmp_path / "test.conllu", "\n".join(lines) + "\n\n")
    [sentence] = raise_errors(sentences_or_errors(path, named_entities=False))
    assert (sentence.words, sentence.tags) == (("in", "dem", "Hafen"), ("ADP", "DET", "NOUN"))
    short = write(tmp_path / "short.conllu", "1\tin\tADP\n")
    with pytest.raises(TextError, match="line 1: 3 columns instead of CoNLL-U's 10"):
        list(raise_errors(sentences_or_errors(short, named_entities=False)))


@pytest.mark.parametrize("columns", [("tokens", "ner_tags"), ("words", "tags")])
def test_tag_numbers_of_a_dataset_become_tags(columns: tuple[str, str]) -> None:
    rows = [
        {columns[0]: ["Ann", " Lee", "went"], columns[1]: [1, 2, 0], "langs": ["en"] * 3},
        {column: [] for column in columns},
    ]
    sentences = sentences_of_rows(rows, "set", NAMES)
    assert [(each.words, each.tags) for each in sentences] == [
        (("Ann", "Lee", "went"), ("B-PER", "I-PER", "O")),
        ((), ()),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "ner_tags": [0]}, "row 0: 2 words, but 1 tags"),
        ({"tokens": [1], "ner_tags": [0]}, "1 among the words is no text"),
        ({"tokens": ["a"]}, "no column 'ner_tags' or 'tags'"),
    ],
)
def test_a_datasets_row_that_is_no_sentence_is_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(TextError, match=message):
        list(sentences_of_rows([row], "set", NAMES))
