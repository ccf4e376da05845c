"""Searches that retrieval is tested by: parallel lines, files of queries and passages, and folders in BEIR's layout."""

import json
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.tasks import Task
from lingraft.errors import TextError
from lingraft.tasks.fingerprints import marks_of
from lingraft.tasks.searches import SearchData, load_searches


def task(**test: Any) -> Task:
    return Task.model_validate({"name": "search", "kind": "retrieval", "test": test})


def beir(folder: Path, queries: dict[str, str], answers: list[tuple[str, str, str]]) -> Path:
    """Write queries and judgements, behind BEIR's header."""
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": name, "text": text, "metadata": {}}) for name, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [("query-id", "corpus-id", "score"), *answers]
    (folder / "qrels" / "test.tsv").write_text("\n".join(map("\t".join, rows)), encoding="utf-8")
    return folder


def corpus(path: Path, passages: dict[str, tuple[str, str]]) -> Path:
    """Write titles and texts by id."""
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in passages.items()]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_a_line_is_looked_for_among_the_sources(tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").write_text("a cat\tKatze\na dog\tHund\na cat\tKater\n", encoding="utf-8")
    (tmp_path / "news.en").write_text("a cat\na dog\na cat\n", encoding="utf-8")
    (tmp_path / "news.de").write_text("Katze\nHund\nKater\n", encoding="utf-8")
    expected = SearchData(
        queries=("Katze", "Hund", "Kater"),
        passages=("a cat", "a dog"),
        answers=({0: 1.0}, {1: 1.0}, {0: 1.0}),
        in_source=True,
    )
    for files in (f"{tmp_path}/en-{{language}}.tsv", [f"{tmp_path}/news.en", f"{tmp_path}/news.{{language}}"]):
        assert load_searches(task(kind="parallel", files=files), "de", "en") == [expected]


def test_queries_of_a_file_are_looked_for_among_its_passages(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("wer\tKatze\nwo\tHaus\nwer\tHund\n", encoding="utf-8")
    (found,) = load_searches(task(kind="file", path=f"{tmp_path}/{{language}}.tsv"), "de", "en")
    assert found == SearchData(("wer", "wo"), ("Katze", "Haus", "Hund"), ({0: 1.0, 2: 1.0}, {1: 1.0}), in_source=False)


def test_a_beir_folder_is_searched_in_the_sources_corpus_and_its_own(tmp_path: Path) -> None:
    german = beir(
        tmp_path / "de", {"q1": "wer", "q2": "wo", "q3": "wann"}, [("q2", "b", "2"), ("q2", "a", "1"), ("q3", "a", "0")]
    )
    english = corpus(tmp_path / "corpus.jsonl", {"a": ("Cats", "are here"), "b": ("", "the house")})
    kind = {"kind": "beir", "path": f"{tmp_path}/{{language}}"}
    across = SearchData(("wo",), ("Cats are here", "the house"), ({1: 2.0, 0: 1.0},), in_source=True)
    assert load_searches(task(**kind, source_corpus=str(english)), "de", "en") == [across]
    corpus(german / "corpus.jsonl", {"b": ("", "das Haus"), "a": ("", "Katzen")})
    within = SearchData(("wo",), ("das Haus", "Katzen"), ({0: 2.0, 1: 1.0},), in_source=False)
    assert load_searches(task(**kind, source_corpus=str(english)), "de", "en") == [across, within]
    assert load_searches(task(**kind), "de", "en") == [within]


def as_jsonl(folder: Path, **changes: Any) -> None:
    """Put the judgements of a folder into JSONL, with some keys changed."""
    header, *rows = (line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines())
    objects = [dict(zip(header, row, strict=True)) for row in rows]
    lines = [json.dumps(each | {"score": int(each["score"])} | changes) for each in objects]
    (folder / "qrels" / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "qrels" / "test.tsv").unlink()


def test_judgements_are_a_table_or_jsonl(tmp_path: Path) -> None:
    german = beir(tmp_path / "de", {"q1": "wer", "q2": "wo"}, [("q2", "b", "2"), ("q2", "a", "1")])
    corpus(german / "corpus.jsonl", {"a": ("", "Katze"), "b": ("", "Hund")})
    wanted = task(kind="beir", path=f"{tmp_path}/{{language}}")
    found = load_searches(wanted, "de", "en")
    as_jsonl(german)
    assert load_searches(wanted, "de", "en") == found
    (german / "qrels" / "test.jsonl").unlink()
    with pytest.raises(TextError, match=r"qrels has neither test\.tsv nor test\.jsonl, which name the answers"):
        load_searches(wanted, "de", "en")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus-id": ["a"]}, r"test\.jsonl, line 1: column 'corpus-id' must hold a text, not \['a'\]"),
        ({"query-id": 7}, r"test\.jsonl, line 1: column 'query-id' must hold a text, not 7"),
        ({"score": None}, r"test\.jsonl, line 1: the score must be a finite number, not None"),
    ],
)
def test_judgements_of_other_types_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    german = beir(tmp_path / "de", {"q": "wer"}, [("q", "a", "1")])
    corpus(german / "corpus.jsonl", {"a": ("", "Katze"), "b": ("", "Hund")})
    as_jsonl(german, **changes)
    with pytest.raises(TextError, match=message):
        load_searches(task(kind="beir", path=f"{tmp_path}/{{language}}"), "de", "en")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([("q", "z", "1")], r"test\.tsv, line 2: .*corpus\.jsonl has no id 'z'\. Add it, or remove the line"),
        ([("z", "a", "1")], r"test\.tsv, line 2: queries\.jsonl has no id 'z'"),
        ([("q", "a", "much")], r"test\.tsv, line 2: the score must be a finite number, not 'much'"),
        ([("q", "a", "inf")], r"test\.tsv, line 2: the score must be a finite number, not 'inf'"),
        ([("q", "a", "0")], r"no query has a passage of .*corpus\.jsonl with a score above 0"),
    ],
)
def test_judgements_that_fit_nothing_are_refused(
    tmp_path: Path, answers: list[tuple[str, str, str]], message: str
) -> None:
    corpus(beir(tmp_path / "de", {"q": "wer"}, answers) / "corpus.jsonl", {"a": ("", "Katze"), "b": ("", "Hund")})
    with pytest.raises(TextError, match=message):
        load_searches(task(kind="beir", path=f"{tmp_path}/{{language}}"), "de", "en")


def test_two_texts_with_one_id_are_refused(tmp_path: Path) -> None:
    german = beir(tmp_path / "de", {"q": "wer"}, [("q", "a", "1")])
    own = corpus(german / "corpus.jsonl", {"a": ("", "Katze"), "b": ("", "Hund")})
    own.write_text(own.read_text().replace('"b"', '"a"'), encoding="utf-8")
    with pytest.raises(TextError, match=r"corpus\.jsonl, line 2: id 'a' is another text's, too\. Give each"):
        load_searches(task(kind="beir", path=f"{tmp_path}/{{language}}"), "de", "en")


def test_a_folder_without_a_corpus_is_refused(tmp_path: Path) -> None:
    beir(tmp_path / "de", {"q": "wer"}, [("q", "a", "1")])
    with pytest.raises(TextError, match=r"corpus\.jsonl cannot be read"):
        load_searches(task(kind="beir", path=f"{tmp_path}/{{language}}"), "de", "en")


def test_one_passage_is_nothing_to_choose_from(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("a cat\tKatze\n", encoding="utf-8")
    with pytest.raises(TextError, match=r"de\.tsv: 1 queries have 1 passage to choose from\. Add"):
        load_searches(task(kind="parallel", files=f"{tmp_path}/de.tsv"), "de", "en")


def test_a_fingerprint_follows_every_file(tmp_path: Path) -> None:
    folder = beir(tmp_path / "de", {"q": "wer"}, [("q", "a", "1")])
    english = corpus(tmp_path / "corpus.jsonl", {"a": ("", "cats"), "b": ("", "dogs")})
    wanted = task(kind="beir", path=f"{tmp_path}/{{language}}", source_corpus=str(english))
    marks = [marks_of(wanted, ("test",), "de")["test"]]
    for path in (english, folder / "queries.jsonl", folder / "qrels" / "test.tsv"):
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        marks.append(marks_of(wanted, ("test",), "de")["test"])
    lines = task(kind="parallel", files=str(english))
    marks.append(marks_of(lines, ("test",), "de")["test"])
    assert len({*marks}) == len(marks)
