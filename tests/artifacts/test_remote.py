"""Blocks and results in object storage."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import s3fs
import torch
from fsspec.implementations.memory import MemoryFileSystem

from lingraft.artifacts import remote
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.artifacts.remote import open_remote, synced_folder, uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from tests.data.test_shards import flip_a_bit, packed
from tests.fixtures import forked
from tests.workshop import Workshop


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return packed(tmp_path / "stored", 95, 10).folder


class Handler(SimpleHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web(stored: Path) -> Iterator[str]:
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(stored))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3://bucket/blocks/en", "s3://bucket/blocks/en"),
        (Path("s3://bucket/blocks/en"), "s3://bucket/blocks/en"),
        (Path("file:///srv/blocks"), "file:///srv/blocks"),
        (Path("/srv/blocks"), None),
    ],
)
def test_a_uri_is_told_from_a_folder_even_where_it_has_lost_a_slash(given: Path | str, uri: str | None) -> None:
    assert uri_of(given) == uri


def test_blocks_from_storage_are_those_on_disk(workshop: Workshop) -> None:
    memory = MemoryFileSystem()
    memory.put(str(workshop.blocks["de"]), "/bucket/de", recursive=True)
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    local, remote = (
        load_blocks(folder, pieces, workshop.recipe.encoder.block_tokens)
        for folder in (workshop.blocks["de"], Path("memory://bucket/de"))
    )
    assert remote.fingerprint == local.fingerprint
    for name in ("train", "dev", "test"):
        one, other = open_split(remote, name), open_split(local, name)
        assert (len(one), one.block_tokens) == (len(other), other.block_tokens)
        assert torch.equal(one.all(), other.all())
    memory.rm("/bucket", recursive=True)


def read_all(uri: str) -> int:
    return len(open_split(open_remote(uri, Kind.BLOCKS), "train").all())


def test_processes_share_a_cache_and_download_each_file_once(web: str, tmp_path: Path) -> None:
    with forked.at_once(tmp_path) as gate:
        several = [forked.start(read_all, web, log=tmp_path / f"{n}.log", gate=gate) for n in range(2)]
    assert [process.returns() for process in several] == [95, 95]
    shards = [name for name in Handler.asked if name.endswith(".safetensors")]
    assert sorted(shards) == [f"/train-{number:05d}.safetensors" for number in range(10)]


def test_a_damaged_file_is_named_and_not_kept(stored: Path, tmp_path: Path) -> None:
    flip_a_bit(stored / "train-00003.safetensors")
    with pytest.raises(ArtifactError, match=r"train-00003\.safetensors was truncated or edited"):
        open_remote(f"file://{stored}", Kind.BLOCKS)
    flip_a_bit(stored / "train-00003.safetensors")
    assert read_all(f"file://{stored}") == 95


def test_blocks_that_were_made_anew_do_not_mix_with_those_downloaded_before(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/stored"
    packed(tmp_path / "stored", 95, 10)
    before = open_remote(uri, Kind.BLOCKS)
    (tmp_path / "stored").rename(tmp_path / "gone")
    packed(tmp_path / "stored", 55, 10)
    assert read_all(uri) == 55
    assert len(open_split(before, "train").all()) == 95


def test_an_address_without_an_artifact_is_refused(web: str, tmp_path: Path) -> None:
    for uri in (f"{web}/nothing", f"file://{tmp_path}/nothing"):
        with pytest.raises(ArtifactError, match=f"{uri} is not an artifact: it has no {MANIFEST}"):
            open_remote(uri, Kind.BLOCKS)
    with pytest.raises(ArtifactError, match="kind blocks, but one of kind primary is needed"):
        open_remote(web, Kind.PRIMARY)
    with pytest.raises(ArtifactError, match="nonsense://x cannot be opened: Protocol not known: nonsense"):
        open_remote("nonsense://x", Kind.BLOCKS)


def test_blocks_come_from_s3_and_a_file_that_is_missing_there_is_named(bucket: str, stored: Path) -> None:
    client = boto3.client("s3")
    for path in stored.iterdir():
        if path.name != "train-00000.safetensors":
            client.upload_file(str(path), "corpus", f"blocks/en/{path.name}")
    with pytest.raises(
        ArtifactError, match=r"s3://corpus/blocks/en/train-00000\.safetensors cannot be read or written: "
    ):
        open_remote("s3://corpus/blocks/en", Kind.BLOCKS)
    client.upload_file(str(stored / "train-00000.safetensors"), "corpus", "blocks/en/train-00000.safetensors")
    assert read_all("s3://corpus/blocks/en") == 95


def test_a_folder_of_s3_is_downloaded_and_what_changed_is_uploaded_also_after_an_error(
    bucket: str, tmp_path: Path
) -> None:
    place = RemotePath.of("s3://corpus/results/text-1")
    client = boto3.client("s3")

    def stopped() -> None:
        with synced_folder(place, tmp_path / "first"):
            for name in (f"result/{MANIFEST}", "result.training/step-1", ".hidden", "result/a"):
                (tmp_path / "first" / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "first" / name).write_text(name)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    with synced_folder(place, tmp_path / "second"):
        names = {path.relative_to(tmp_path / "second").as_posix() for path in (tmp_path / "second").rglob("*.*")}
        assert names == {f"result/{MANIFEST}", "result.training"}
        (tmp_path / "second/result.training/step-1").unlink()
        (tmp_path / "second/result/a").write_text("another")
    found = client.list_objects_v2(Bucket="corpus", Prefix="results/text-1/")["Contents"]
    order = [each["Key"] for each in sorted(found, key=lambda each: each["Key"])]
    assert order == ["results/text-1/result/a", f"results/text-1/result/{MANIFEST}"]
    assert client.get_object(Bucket="corpus", Key=order[0])["Body"].read() == b"another"


def test_a_checkpoint_is_in_the_store_before_the_stage_ends(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_UPLOAD_EVERY_S", 0.05)
    place = RemotePath.of("s3://corpus/results/pretrain")
    first, second = (tmp_path / f"result.training/step-{step}" for step in (1, 2))

    def stored() -> set[str]:
        place.system.invalidate_cache()
        return {path.rsplit("/", 1)[1] for path in place.system.find(place.path)}

    with synced_folder(place, tmp_path):
        first.parent.mkdir()
        first.write_text("a checkpoint")
        assert waits_for(lambda: stored() == {"step-1"})
        second.write_text("the next one")
        first.unlink()
        assert waits_for(lambda: stored() == {"step-2"})


def waits_for(holds: Callable[[], bool]) -> bool:
    return any(holds() or time.sleep(0.05) for _ in range(200))


def test_a_store_out_of_reach_is_named(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    place = RemotePath.of("s3://corpus/results")
    with pytest.raises(ArtifactError, match=r"s3://corpus/results cannot be read or written: .*127\.0\.0\.1:9"):
        synced_folder(place, tmp_path).__enter__()
