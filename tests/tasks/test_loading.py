import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.tasks import Task
from lingraft.errors import TextError
from lingraft.tasks.classification import Classification
from lingraft.tasks.loading import kind_of, load_examples
from lingraft.tasks.question_answering import QuestionAnswering
from lingraft.tasks.tagging import Tagging

NLI = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
TEXT = datasets.Value("string")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def task(kind: str, data: dict[str, str] | None = None) -> Task:
    splits = dict.fromkeys(("train", "dev", "test"), data) if data else {}
    return Task.model_validate({"name": "some-task", "kind": kind, **splits})


def from_hub(kind: str, folder: Path, **changes: str) -> Task:
    return task(kind, {"kind": "huggingface", "dataset": str(folder), "split": "validation", **changes})


def save(folder: Path, rows: list[dict[str, Any]], features: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    dataset = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    dataset.to_parquet(folder / "validation-00000-of-00001.parquet")
    return folder


def text_of(folder: Path, language: str) -> Artifact:
    with artifact.create(folder, Kind.TEXT) as draft:
        for split in ("train", "dev", "test"):
            line = json.dumps({"name": f"{split}-page", "text": "words", "label": split})
            (draft.folder / f"{split}.jsonl").write_text(line + "\n", encoding="utf-8")
        draft.facts = {"language": language}
    return Artifact.load(folder, Kind.TEXT)


@pytest.mark.parametrize(
    ("kind", "expected", "metric"),
    [
        ("documents", Classification, "accuracy"),
        ("texts", Classification, "accuracy"),
        ("pairs", Classification, "accuracy"),
        ("tags", Tagging, "F1"),
        ("questions", QuestionAnswering, "F1"),
    ],
)
def test_every_kind_of_task_has_its_metric(kind: str, expected: type, metric: str) -> None:
    data = {"kind": "file", "path": "dev-{language}.tsv"}
    found = kind_of(task(kind, None if kind == "documents" else data))
    assert isinstance(found, expected)
    assert found.metric == metric


def test_the_language_is_put_into_a_files_path(tmp_path: Path) -> None:
    (tmp_path / "dev-de.tsv").write_text("eins\tzwei\tneutral\n", encoding="utf-8")
    (tmp_path / "dev-ar.tsv").write_text("واحد\tاثنان\tneutral\n", encoding="utf-8")
    nli = task("pairs", {"kind": "file", "path": f"{tmp_path}/dev-{{language}}.tsv"})
    assert [each.texts for each in load_examples(nli, "dev", "ar", None)] == [("واحد", "اثنان")]
    with pytest.raises(TextError, match=r"dev-tr\.tsv cannot be read"):
        load_examples(nli, "dev", "tr", None)


def test_each_split_comes_from_where_the_recipe_says(tmp_path: Path) -> None:
    places = {split: {"kind": "file", "path": str(tmp_path / f"{split}.tsv")} for split in ("train", "dev", "test")}
    for split in places:
        (tmp_path / f"{split}.tsv").write_text(f"text of {split}\ta\n", encoding="utf-8")
    texts = Task.model_validate({"name": "some-task", "kind": "texts", **places})
    assert load_examples(texts, "train", "en", None)[0].texts == ("text of train",)
    assert load_examples(texts, "dev", "en", None)[0].texts == ("text of dev",)
    assert load_examples(texts, "test", "en", None)[0].texts == ("text of test",)


def test_tags_are_read_as_sentences(tmp_path: Path) -> None:
    (tmp_path / "dev-de.tsv").write_text("Köln\tB-LOC\n", encoding="utf-8")
    (found,) = load_examples(task("tags", {"kind": "file", "path": str(tmp_path / "dev-de.tsv")}), "dev", "de", None)
    assert (found.words, found.tags) == (("Köln",), ("B-LOC",))


def test_documents_are_those_of_the_languages_text(tmp_path: Path) -> None:
    text = text_of(tmp_path / "text", "de")
    (found,) = load_examples(task("documents"), "dev", "de", text)
    assert (found.texts, found.label) == (("words",), "dev")


@pytest.mark.parametrize(
    ("given", "message"),
    [(lambda folder: None, "given none"), (lambda folder: text_of(folder, "en"), "given text in 'en'")],
)
def test_documents_of_no_or_another_language_are_refused(
    tmp_path: Path, given: Callable[[Path], Artifact | None], message: str
) -> None:
    with pytest.raises(TextError, match=rf"examples from the text in 'de', and was {message}"):
        load_examples(task("documents"), "dev", "de", given(tmp_path / "text"))


def test_xnlis_dataset_has_class_numbers_with_names(tmp_path: Path) -> None:
    rows = [{"premise": "Ja.", "hypothesis": "Nein.", "label": 2}]
    save(tmp_path / "xnli-de", rows, {"premise": TEXT, "hypothesis": TEXT, "label": NLI})
    (found,) = load_examples(from_hub("pairs", tmp_path / "xnli-{language}"), "dev", "de", None)
    assert (found.texts, found.label) == (("Ja.", "Nein."), "contradiction")


def test_all_languages_of_xnli_at_once_are_refused_with_what_to_choose(tmp_path: Path) -> None:
    languages = ["de", "en"]
    features = {
        "premise": datasets.Translation(languages),
        "hypothesis": datasets.TranslationVariableLanguages(languages),
        "label": NLI,
    }
    several = {"de": "Ja.", "en": "Yes."}
    save(tmp_path / "xnli", [{"premise": several, "hypothesis": several, "label": 0}], features)
    with pytest.raises(
        TextError, match=r"several languages at once \(\['de', 'en'\]\).*configuration = '\{language\}'"
    ):
        load_examples(from_hub("pairs", tmp_path / "xnli"), "dev", "de", None)


def test_a_datasets_language_column_picks_the_rows(tmp_path: Path) -> None:
    # XTREME's XNLI.
    rows = [
        {"language": language, "sentence1": language, "sentence2": "b", "gold_label": "neutral"}
        for language in ("de", "ar", "de")
    ]
    save(tmp_path / "xtreme", rows, dict.fromkeys(("language", "sentence1", "sentence2", "gold_label"), TEXT))
    found = load_examples(from_hub("pairs", tmp_path / "xtreme"), "dev", "ar", None)
    assert [each.texts for each in found] == [("ar", "b")]
    with pytest.raises(TextError, match=r"no rows in 'tr': its column 'language' holds \['ar', 'de'\]"):
        load_examples(from_hub("pairs", tmp_path / "xtreme"), "dev", "tr", None)


def test_pawsx_dataset_has_classes_0_and_1(tmp_path: Path) -> None:
    features = {"id": datasets.Value("int32"), "sentence1": TEXT, "sentence2": TEXT}
    labels = datasets.ClassLabel(names=["0", "1"])
    rows = [{"id": 1, "sentence1": "a", "sentence2": "b", "label": 1}]
    save(tmp_path / "paws-x", rows, features | {"label": labels})
    (found,) = load_examples(from_hub("pairs", tmp_path / "paws-x"), "dev", "de", None)
    assert (found.texts, found.label) == (("a", "b"), "1")


def test_a_dataset_of_texts_with_any_classes(tmp_path: Path) -> None:
    labels = datasets.ClassLabel(names=["weather", "sport", "science"])
    save(tmp_path / "topics", [{"text": "Tor!", "label": 1}], {"text": TEXT, "label": labels})
    (found,) = load_examples(from_hub("texts", tmp_path / "topics"), "dev", "de", None)
    assert (found.texts, found.label) == (("Tor!",), "sport")


def test_conlls_dataset_takes_the_names_of_its_entity_tags(tmp_path: Path) -> None:
    other, tags = (datasets.ClassLabel(names=names) for names in (["NN", "VB"], ["O", "B-PER"]))
    features = {"tokens": datasets.List(TEXT), "pos_tags": datasets.List(other), "ner_tags": datasets.List(tags)}
    save(tmp_path / "conll", [{"tokens": ["Ann", "went"], "pos_tags": [0, 1], "ner_tags": [1, 0]}], features)
    (found,) = load_examples(from_hub("tags", tmp_path / "conll"), "dev", "en", None)
    assert (found.words, found.tags) == (("Ann", "went"), ("B-PER", "O"))


def test_questions_of_a_dataset_need_no_class_names(tmp_path: Path) -> None:
    answers = {"text": datasets.List(TEXT), "answer_start": datasets.List(datasets.Value("int32"))}
    row = {"id": "q", "context": "In Bonn.", "question": "Wo?", "answers": {"text": ["Bonn"], "answer_start": [3]}}
    save(tmp_path / "xquad", [row], {"id": TEXT, "context": TEXT, "question": TEXT, "answers": answers})
    (found,) = load_examples(from_hub("questions", tmp_path / "xquad"), "dev", "de", None)
    assert (found.question, found.answers[0].text) == ("Wo?", "Bonn")


def test_an_unknown_split_is_named_with_the_task(tmp_path: Path) -> None:
    save(tmp_path / "topics", [{"text": "Tor!"}], {"text": TEXT})
    with pytest.raises(TextError, match=r"split 'absent' cannot be loaded: .* task 'some-task'"):
        load_examples(from_hub("texts", tmp_path / "topics", split="absent"), "dev", "de", None)
