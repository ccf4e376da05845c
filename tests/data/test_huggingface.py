import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from lingraft.config.tasks import TaskDataset
from lingraft.config.text import HuggingFace
from lingraft.data.documents import Document, hash_name
from lingraft.data.huggingface import dataset_documents, load_rows
from lingraft.errors import TextError

ROWS = [
    {"text": " Tor! ", "topic": 1, "page": "p1"},
    {"text": "Regen.", "topic": 0, "page": "p2"},
    {"text": None, "topic": -1, "page": None},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def _source(folder: Path, **changes: Any) -> HuggingFace:
    return HuggingFace.model_validate({"kind": "huggingface", "dataset": str(folder)} | changes)


def _save_jsonl(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")


def _save_parquet_with_class_labels(folder: Path) -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "topic": datasets.ClassLabel(names=["weather", "sport"]),
            "page": datasets.Value("string"),
        }
    )
    folder.mkdir(parents=True)
    datasets.Dataset.from_list(ROWS, features=features).to_parquet(folder / "train-00000-of-00001.parquet")


def test_class_labels_become_their_names_and_minus_one_no_label(tmp_path: Path) -> None:
    _save_parquet_with_class_labels(tmp_path / "set")
    source = _source(tmp_path / "set", label_column="topic", name_column="page")
    assert list(dataset_documents(source, "de")) == [
        Document("p1", "Tor!", "sport"),
        Document("p2", "Regen.", "weather"),
        Document(hash_name(""), "", None),
    ]


def test_rows_without_label_and_name_columns_are_named_by_content(tmp_path: Path) -> None:
    _save_jsonl(tmp_path / "set")
    found = list(dataset_documents(_source(tmp_path / "set"), "de"))
    assert found[0] == Document(hash_name("Tor!"), "Tor!", None)
    assert [document.text for document in found] == ["Tor!", "Regen.", ""]


@pytest.mark.parametrize("key", ["text_column", "label_column", "name_column"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_missing_column_is_answered_with_those_there_are(tmp_path: Path, key: str, streaming: bool) -> None:
    _save_jsonl(tmp_path / "set")
    with pytest.raises(TextError, match=r"row 0, has no column 'body'; it has \['text', 'topic', 'page'\]"):
        list(dataset_documents(_source(tmp_path / "set", streaming=streaming, **{key: "body"}), "de"))


@pytest.mark.parametrize("changes", [{"split": "validation"}, {"configuration": "de"}, {"dataset": "/absent"}])
def test_an_unknown_split_or_configuration_is_named(tmp_path: Path, changes: dict[str, str]) -> None:
    _save_jsonl(tmp_path / "set")
    with pytest.raises(TextError, match=rf"{next(iter(changes))} '{next(iter(changes.values()))}'"):
        list(dataset_documents(_source(tmp_path / "set", **changes), "de"))


@pytest.mark.parametrize("configuration", [None, "mlqa.{language}.{language}"])
def test_a_loading_script_is_answered_with_the_hubs_own_conversion(tmp_path: Path, configuration: str | None) -> None:
    (tmp_path / "mlqa").mkdir()
    (tmp_path / "mlqa" / "mlqa.py").write_text("raise SystemExit('was run')\n", encoding="utf-8")
    source = TaskDataset(
        kind="huggingface", dataset=str(tmp_path / "mlqa"), configuration=configuration, split="test", revision="main"
    )
    with pytest.raises(TextError, match=r"found mlqa\.py\. Set revision = 'refs/convert/parquet'.* task 'mlqa'; of a"):
        load_rows(source, "de", "task 'mlqa'")


@pytest.mark.parametrize("language", ["de", "es"])
def test_in_the_hubs_conversion_a_configuration_is_a_folder(tmp_path: Path, language: str) -> None:
    for name in ("de", "es"):
        folder = tmp_path / "mlqa" / f"mlqa.{name}.{name}" / "test"
        folder.mkdir(parents=True)
        datasets.Dataset.from_list([{"text": name}]).to_parquet(folder / "0000.parquet")
    source = _source(
        tmp_path / "mlqa", configuration="mlqa.{language}.{language}", split="test", revision="refs/convert/parquet"
    )
    assert [document.text for document in dataset_documents(source, language)] == [language]


def test_the_revision_reaches_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def record(*_: Any, revision: str | None, **__: Any) -> None:
        asked.append(revision)
        raise datasets.exceptions.DatasetNotFoundError("Revision 'v9' doesn't exist.")

    monkeypatch.setattr(datasets.load, "dataset_module_factory", record)
    source = TaskDataset(kind="huggingface", dataset="facebook/xnli", split="test", revision="v9")
    with pytest.raises(TextError, match="split 'test', revision 'v9' cannot be loaded: Revision 'v9' doesn't exist"):
        load_rows(source, "de", "task 'xnli'")
    assert asked == ["v9"]


@pytest.mark.parametrize("save", [_save_jsonl, _save_parquet_with_class_labels])
def test_a_stream_gives_the_same_documents_and_keeps_nothing_on_disk(
    tmp_path: Path, save: Callable[[Path], None]
) -> None:
    save(tmp_path / "set")
    columns = {"label_column": "topic", "name_column": "page"}
    streamed = list(dataset_documents(_source(tmp_path / "set", streaming=True, **columns), "de"))
    assert not list((tmp_path / "cache").rglob("*.arrow"))
    assert list(dataset_documents(_source(tmp_path / "set", **columns), "de")) == streamed
    assert list((tmp_path / "cache").rglob("*.arrow"))


def test_a_stream_is_read_no_further_than_asked_for(tmp_path: Path) -> None:
    _save_jsonl(tmp_path / "set")
    (tmp_path / "set" / "train.jsonl").rename(tmp_path / "set" / "train-00000-of-00002.jsonl")
    (tmp_path / "set" / "train-00001-of-00002.jsonl").write_text('{"text": "ganz', encoding="utf-8")
    documents = dataset_documents(_source(tmp_path / "set", streaming=True), "de")
    assert [next(documents).text for _ in ROWS] == ["Tor!", "Regen.", ""]
    with pytest.raises(TextError, match=r"cannot be read on from row 3: .*Check the network and the dataset's files"):
        next(documents)
