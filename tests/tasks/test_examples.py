import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.tasks import Task
from lingraft.errors import RecipeError, TextError
from lingraft.tasks.examples import load_examples

NLI_NAMES = ["entailment", "neutral", "contradiction"]
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


def test_the_language_is_put_into_a_files_path(tmp_path: Path) -> None:
    (tmp_path / "dev-de.tsv").write_text("eins\tzwei\tneutral\n", encoding="utf-8")
    (tmp_path / "dev-ar.tsv").write_text("واحد\tاثنان\tneutral\n", encoding="utf-8")
    nli = task("pairs", {"kind": "file", "path": f"{tmp_path}/dev-{{language}}.tsv"})
    assert [each.texts for each in load_examples(nli, "dev", "ar", None)] == [("واحد", "اثنان")]
    with pytest.raises(TextError, match=r"dev-tr\.tsv cannot be read"):
        load_examples(nli, "dev", "tr", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [(lambda folder: None, "given none"), (lambda folder: text_of(folder, "en"), "given text in 'en'")],
)
def test_documents_of_no_or_another_language_are_refused(
    tmp_path: Path, given: Callable[[Path], Artifact | None], message: str
) -> None:
    with pytest.raises(TextError, match=rf"examples from the text in 'de', and was {message}"):
        load_examples(task("documents"), "dev", "de", given(tmp_path / "text"))


def test_all_languages_of_xnli_at_once_are_refused_with_what_to_choose(tmp_path: Path) -> None:
    languages = ["de", "en"]
    features = {
        "premise": datasets.Translation(languages),
        "hypothesis": datasets.TranslationVariableLanguages(languages),
        "label": datasets.ClassLabel(names=NLI_NAMES),
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


@pytest.mark.parametrize(
    ("kind", "names", "row", "expected"),
    [
        (
            "pairs",
            NLI_NAMES,
            {"premise": "Ja.", "hypothesis": "Nein.", "label": 2},
            (("Ja.", "Nein."), "contradiction"),
        ),
        ("pairs", ["0", "1"], {"id": "1", "sentence1": "a", "sentence2": "b", "label": 1}, (("a", "b"), "1")),
        ("texts", ["weather", "sport"], {"text": "Tor!", "label": 1}, (("Tor!",), "sport")),
    ],
    ids=["XNLI", "PAWS-X", "texts"],
)
def test_class_numbers_of_a_dataset_have_names(
    tmp_path: Path, kind: str, names: list[str], row: dict[str, Any], expected: object
) -> None:
    save(tmp_path / "set-de", [row], dict.fromkeys(row, TEXT) | {"label": datasets.ClassLabel(names=names)})
    (found,) = load_examples(from_hub(kind, tmp_path / "set-{language}"), "dev", "de", None)
    assert (found.texts, found.label) == expected


def test_a_datasets_sentences_take_the_names_of_its_entity_tags(tmp_path: Path) -> None:
    other, tags = (datasets.ClassLabel(names=names) for names in (["NN", "VB"], ["O", "B-PER"]))
    features = {"tokens": datasets.List(TEXT), "pos_tags": datasets.List(other), "ner_tags": datasets.List(tags)}
    save(tmp_path / "conll", [{"tokens": ["Ann", "went"], "pos_tags": [0, 1], "ner_tags": [1, 0]}], features)
    (found,) = load_examples(from_hub("tags", tmp_path / "conll"), "dev", "en", None)
    assert (found.words, found.tags) == (("Ann", "went"), ("B-PER", "O"))


def test_a_language_without_a_metric_is_refused_before_a_file_is_read(tmp_path: Path) -> None:
    questions = task("questions", {"kind": "file", "path": str(tmp_path / "missing.json")})
    mlqa = questions.model_copy(update={"evaluation": "mlqa"})
    with pytest.raises(RecipeError, match="not for 'th'"):
        load_examples(mlqa, "dev", "th", None)
