import sys
from pathlib import Path, PurePosixPath

import boto3
import datasets
import pytest

from lingraft.artifacts.storage import RemotePath, expand_paths, list_files, list_names, parse_path
from lingraft.data.documents import Document
from lingraft.errors import ArtifactError, MissingExtraError, TextError
from tests.artifacts.conftest import CORPUS
from tests.read_text import read_documents, read_files


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name, content in CORPUS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return str(tmp_path)


@pytest.fixture(params=["folder", "file URI", "bucket"])
def root(request: pytest.FixtureRequest) -> str:
    if request.param == "file URI":
        return f"file://{request.getfixturevalue('folder')}"
    found: str = request.getfixturevalue(request.param)
    return found


def test_languages_files_folders_and_patterns_are_read_alike_from_everywhere(root: str) -> None:
    assert [document.text for document in read_documents(parse_path(root), "de")] == ["Eins.", "Zwei."]
    assert list(read_documents(parse_path(root), "fr")) == [Document("1", "Un", "a")]
    assert list(read_documents(parse_path(root), "news")) == [
        Document("a", "Hello.", None),
        Document("sport/b", "Goal!\n\nTwo.", "sport"),
    ]
    with pytest.raises(TextError, match=r"no text for language 'el', only \['de.txt.xz', 'fr.jsonl.gz', 'news'\]"):
        list(read_documents(parse_path(root), "el"))
    assert list_names(parse_path(root)) == ["de.txt.xz", "fr.jsonl.gz", "news"]
    assert list_files(parse_path(root) / "news") == [PurePosixPath("a.txt"), PurePosixPath("sport/b.txt.zst")]

    def texts(name: str) -> list[str]:
        return [document.text for document in read_files(expand_paths(f"{root}/{name}"))]

    assert texts("de.txt.xz") == ["Eins.", "Zwei."]
    assert texts("news") == ["Hello.", "Goal!\n\nTwo."]
    assert texts("*.*z") == ["Eins.", "Zwei.", "Un"]
    assert texts("news/**/?.txt.zst") == ["Goal!", "Two."]
    with pytest.raises(TextError, match=r"the pattern .*/\*\.csv fits no file or folder"):
        texts("*.csv")
    with pytest.raises(TextError, match=r"there is no file or folder .*/absent\.txt"):
        texts("absent.txt")


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("Eins.")
    (tmp_path / "a1.txt").write_text("Zwei.")
    assert expand_paths(f"{tmp_path}/a[1].txt") == [tmp_path / "a[1].txt"]


def test_a_truncated_file_in_a_store_is_named(bucket: str) -> None:
    boto3.client("s3").put_object(Bucket="corpus", Key="texts/el.txt.xz", Body=CORPUS["de.txt.xz"][:-20])
    with pytest.raises(TextError, match=r"s3://corpus/texts/el\.txt\.xz is damaged or truncated"):
        list(read_documents(parse_path(bucket), "el"))
    with pytest.raises(TextError, match=r"there is no folder s3://another/texts"):
        list(read_documents(parse_path("s3://another/texts"), "de"))


def test_parquet_is_read_from_a_store_and_a_damaged_one_is_named(bucket: str, tmp_path: Path) -> None:
    content = _parquet(tmp_path / "a.parquet", [{"text": str(number)} for number in range(500)]).read_bytes()
    boto3.client("s3").put_object(Bucket="corpus", Key="texts/vi.parquet", Body=content)
    assert len(list(read_documents(parse_path(bucket), "vi"))) == 500
    (tmp_path / "de.parquet").write_bytes(content[:-30])
    with pytest.raises(TextError, match=r"de\.parquet is damaged or no Parquet"):
        list(read_documents(tmp_path, "de"))


@pytest.mark.usefixtures("bucket")
def test_a_place_that_does_not_take_an_object_is_found() -> None:
    RemotePath.of("s3://corpus/results").require_writable()
    assert not any("results" in name for name in keys_of("corpus"))
    with pytest.raises(ArtifactError, match="cannot write s3://another/results: "):
        RemotePath.of("s3://another/results").require_writable()


def keys_of(name: str) -> list[str]:
    return [found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket=name)["Contents"]]


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [("s3://b/x.txt", "s3fs", "s3"), ("gs://b/x.txt", "gcsfs", "gcs"), ("az://b/x.txt", "adlfs", "azure")],
)
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, uri: str, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    # The name `fsspec.registry` is a view of what the module of that name holds.
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, uri.partition(":")[0], raising=False)
    with pytest.raises(MissingExtraError, match=rf"lingraft\[{extra}\]"):
        parse_path(uri)


@pytest.mark.parametrize("uri", ["nowhere://b/x.txt", "az://container/x.txt"])
def test_a_uri_that_cannot_be_opened_is_named(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    with pytest.raises(TextError, match=rf"{uri} cannot be opened: .*Check its protocol and settings"):
        parse_path(uri)


def _parquet(path: Path, rows: list[dict[str, object]]) -> Path:
    datasets.Dataset.from_list(rows).to_parquet(path, batch_size=2)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"body": "a"}], r"de\.parquet has no column 'text'; it has \['body'\]"),
        ([{"text": 1}], r"de\.parquet, row 1: 'text' must be a string, not 1"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": " "}], r"de\.parquet, row 2: 'label' is empty"),
    ],
)
def test_a_wrong_parquet_is_named_by_file_and_row(tmp_path: Path, rows: list[dict[str, object]], message: str) -> None:
    _parquet(tmp_path / "de.parquet", rows)
    with pytest.raises(TextError, match=message):
        list(read_documents(tmp_path, "de"))
