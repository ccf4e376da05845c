import fcntl
import http.server
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from lingraft.artifacts import remote as object_storage
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.artifacts.remote import RemoteShards, open_remote, uri_of
from lingraft.artifacts.token_ids import Ids, map_ids
from lingraft.data.blocks import CACHE_VARIABLE, load_blocks, open_split
from lingraft.data.shards import ShardCache
from lingraft.data.shuffling import ShuffledIndices
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.retry import backoff
from tests.data.test_shards import T, flip_a_bit, packed
from tests.fixtures import forked
from tests.workshop import Workshop

SHARD_BYTES = 10 * T * 2


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(object_storage, "FETCH_ATTEMPTS", 3)
    monkeypatch.setattr(object_storage, "backoff", partial(backoff, first_s=0.01))
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return packed(tmp_path / "stored", 95, 10).folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


class Web:
    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.answer_500 = self.cut_short = self.flip = 0
        """How many of the next answers for shards go wrong, and how."""
        self.hang = threading.Event()
        self.release = threading.Event()
        self.gave_up = threading.Event()
        """Set where nobody released it while it was silent."""
        web = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(folder))

            def do_GET(self) -> None:
                if self.path.endswith(".safetensors"):
                    web.answer(self, folder / self.path.lstrip("/"))
                else:
                    super().do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: http.server.SimpleHTTPRequestHandler, path: Path) -> None:
        self.asked.append(path.name)
        if self.answer_500:
            self.answer_500 -= 1
            request.send_error(500)
            return
        content = bytearray(path.read_bytes())
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if self.flip:
            self.flip -= 1
            content[-1] ^= 1
        if self.cut_short:
            self.cut_short -= 1
            content = content[:-20]
        half = len(content) // 2
        request.wfile.write(content[:half])
        if self.hang.is_set():
            if not self.release.wait(5):
                self.gave_up.set()
            return
        request.wfile.write(content[half:])

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web(stored: Path) -> Iterator[Web]:
    server = Web(stored)
    yield server
    server.close()


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


def test_blocks_of_a_workshop_stream_from_storage_as_they_stand_on_disk(workshop: Workshop) -> None:
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
        assert (len(one), one.window, one.block_tokens) == (len(other), other.window, other.block_tokens)
        assert torch.equal(one.all(), other.all())
    memory.rm("/bucket", recursive=True)


def test_only_what_is_needed_is_fetched_and_only_once(web: Web) -> None:
    blocks = open_split(open_remote(web.uri, Kind.BLOCKS), "train")
    assert web.asked == []
    assert blocks.take(torch.tensor([31, 7, 32])).tolist() == [[31] * T, [7] * T, [32] * T]
    found = open_remote(web.uri, Kind.BLOCKS)
    assert int(open_split(found, "train").take(torch.tensor([33]))[0, 0]) == 33
    assert web.asked == ["train-00000.safetensors", "train-00003.safetensors"]
    flip_a_bit(found.folder / "train-00003.safetensors")
    assert int(open_split(found, "train").take(torch.tensor([33]))[0, 0]) == 33
    assert web.asked[2:] == ["train-00003.safetensors"]


def test_the_next_windows_are_fetched_while_nobody_waits(web: Web) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    blocks, order = open_split(found, "train"), ShuffledIndices(95, seed=1, window=20)
    blocks.prefetch_from(order, 0)
    soon = {f"train-{row // 10:05d}.safetensors" for row in order.rows(0, 35).tolist()}
    waited_s = 0.0
    while not soon <= set(names(found.folder)) and waited_s < 10:
        time.sleep(0.02)
        waited_s += 0.02
    asked = list(web.asked)
    assert soon <= set(asked)
    assert torch.equal(blocks.take(order.rows(0, 35))[:, 0], order.rows(0, 35))
    assert web.asked[: len(asked)] == asked
    assert not soon & set(web.asked[len(asked) :])


def test_the_cache_stays_within_its_bounds_and_every_row_is_still_read(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    monkeypatch.setenv(CACHE_VARIABLE, str(4 * SHARD_BYTES))
    blocks, order = open_split(found, "train"), ShuffledIndices(95, seed=1, window=20)
    most = 0
    for place in range(0, 2 * 95, 5):
        blocks.prefetch_from(order, place)
        rows_B = order.rows(place, 5)
        assert torch.equal(blocks.take(rows_B)[:, 0], rows_B)
        most = max(most, len(names(found.folder)))
    assert 2 <= most <= 4
    assert 16 <= len(web.asked) <= 24  # each shard once an epoch, but for those still there, or given up too early


def test_no_room_is_made_by_what_another_process_is_about_to_map(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    open_split(found, "train").all()
    kept = found.folder / "train-00004.safetensors"
    with (found.folder / f".{kept.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        monkeypatch.setenv(CACHE_VARIABLE, str(2 * SHARD_BYTES))
        blocks = open_split(found, "train")
        (found.folder / "train-00000.safetensors").unlink()
        blocks.take(torch.tensor([0]))
        assert names(found.folder) == ["train-00000.safetensors", kept.name]


def test_a_file_that_goes_between_its_hash_and_its_mapping_is_fetched_again(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    open_split(found, "train").take(torch.tensor([42]))
    disappearances = ["once"]

    def mapped(path: Path) -> Ids:
        if disappearances:
            disappearances.pop()
            path.unlink()
        return map_ids(path)

    monkeypatch.setattr(object_storage, "map_ids", mapped)
    assert int(open_split(found, "train").take(torch.tensor([42]))[0, 0]) == 42
    assert web.asked == ["train-00004.safetensors"] * 2
    disappearances += ["again"] * 99
    with pytest.raises(ArtifactError, match=r"train-00004\.safetensors was removed 3 times before it could be read"):
        open_split(found, "train").take(torch.tensor([42]))


def test_a_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    stored = packed(tmp_path / "stored", 95, 10).folder
    (stored / MANIFEST).write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match=rf"{MANIFEST} is damaged: .*Make the artifact again"):
        open_remote(f"file://{stored}", Kind.BLOCKS)


@pytest.mark.parametrize("fault", ["answer_500", "cut_short", "flip"])
def test_a_fetch_that_fails_twice_is_tried_again(web: Web, fault: str) -> None:
    blocks = open_split(open_remote(web.uri, Kind.BLOCKS), "train")
    setattr(web, fault, 2)
    assert int(blocks.take(torch.tensor([42]))[0, 0]) == 42
    assert web.asked == ["train-00004.safetensors"] * 3


@pytest.mark.parametrize(("fault", "reason"), [("answer_500", "500"), ("flip", "SHA-256")])
def test_a_fetch_that_fails_every_time_is_an_error_that_names_it(web: Web, fault: str, reason: str) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    setattr(web, fault, 99)
    with pytest.raises(
        ArtifactError, match=rf"train-00004\.safetensors could not be fetched in 3 attempts: .*{reason}"
    ):
        open_split(found, "train").take(torch.tensor([42]))
    assert names(found.folder) == []
    assert not [path for path in found.folder.iterdir() if path.name.endswith(f"-{os.getpid()}")]


def test_a_server_that_falls_silent_is_an_error_and_no_hang(web: Web) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    web.hang.set()
    files = [f"train-{number:05d}.safetensors" for number in range(10)]
    shelf = ShardCache(RemoteShards(found, 10, stall_s=0.1), files, 10)
    with pytest.raises(ArtifactError, match=r"nothing of http.* arrived for 0 s"):
        shelf.get(4)
    assert not web.gave_up.is_set()  # the error came while the server was still silent
    web.release.set()


def test_blocks_that_were_made_anew_do_not_mix_with_those_fetched_before(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/stored"
    packed(tmp_path / "stored", 95, 10)
    before = open_remote(uri, Kind.BLOCKS)
    (tmp_path / "stored").rename(tmp_path / "gone")
    packed(tmp_path / "stored", 55, 10)
    after = open_remote(uri, Kind.BLOCKS)
    assert before.folder != after.folder
    assert len(open_split(after, "train").all()) == 55
    with pytest.raises(ArtifactError, match=r"train-00005\.safetensors could not be fetched .*SHA-256"):
        open_split(before, "train").take(torch.tensor([59]))


def fetch_all(uri: str) -> int:
    return len(open_split(open_remote(uri, Kind.BLOCKS), "train").all())


def test_processes_share_a_cache_and_fetch_each_shard_once(web: Web, tmp_path: Path) -> None:
    with forked.at_once(tmp_path) as gate:
        several = [forked.start(fetch_all, web.uri, log=tmp_path / f"{n}.log", gate=gate) for n in range(2)]
    assert [process.returns() for process in several] == [95, 95]
    assert sorted(web.asked) == [f"train-{number:05d}.safetensors" for number in range(10)]


def test_an_address_without_an_artifact_is_refused(web: Web, tmp_path: Path) -> None:
    for uri in (f"{web.uri}/nothing", f"file://{tmp_path}/nothing"):
        with pytest.raises(ArtifactError, match=f"{uri} is not an artifact: it has no {MANIFEST}"):
            open_remote(uri, Kind.BLOCKS)
    with pytest.raises(ArtifactError, match="kind blocks, but one of kind primary is needed"):
        open_remote(web.uri, Kind.PRIMARY)
    with pytest.raises(ArtifactError, match="nonsense://x cannot be opened: Protocol not known: nonsense"):
        open_remote("nonsense://x", Kind.BLOCKS)


def test_the_caches_size_may_stand_in_the_environment_and_counts_what_was_left_there(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_remote(web.uri, Kind.BLOCKS)
    open_split(found, "train").all()
    assert len(names(found.folder)) == 10
    monkeypatch.setenv("LINGRAFT_CACHE_BYTES", str(3 * SHARD_BYTES))
    blocks = open_split(found, "train")
    for row in range(0, 95, 10):
        assert int(blocks.take(torch.tensor([row]))[0, 0]) == row
    assert len(names(found.folder)) == 3


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (str(2 * SHARD_BYTES - 1), r"holds 1 shards of .*shuffling needs 2 at a time. Give it 320 bytes"),
        ("80", r"a cache of 80 bytes .*320 bytes or more \(LINGRAFT_CACHE_BYTES\)"),
        ("16 GiB", "LINGRAFT_CACHE_BYTES must be a whole number of bytes.*'16 GiB'"),
        ("-1", "LINGRAFT_CACHE_BYTES must be a whole number of bytes.*'-1'"),
    ],
)
def test_a_cache_size_that_is_too_small_to_shuffle_in_or_no_number_is_refused(
    web: Web, monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    monkeypatch.setenv("LINGRAFT_CACHE_BYTES", said)
    with pytest.raises(ArtifactError, match=words):
        open_split(open_remote(web.uri, Kind.BLOCKS), "train")


def prefetch(uri: str) -> None:
    open_split(open_remote(uri, Kind.BLOCKS), "train").prefetch(torch.tensor([0]))


def test_a_program_ends_though_a_fetch_hangs(web: Web, tmp_path: Path) -> None:
    web.hang.set()
    assert forked.start(prefetch, web.uri, log=tmp_path / "log").ends(60) == 0


def test_blocks_stream_from_s3(bucket: str, stored: Path) -> None:
    client = boto3.client("s3")
    for path in stored.iterdir():
        client.upload_file(str(path), "corpus", f"blocks/en/{path.name}")
    found = open_remote("s3://corpus/blocks/en", Kind.BLOCKS)
    assert open_split(found, "train").all()[:, 0].tolist() == [*range(95)]
    client.delete_object(Bucket="corpus", Key="blocks/en/train-00000.safetensors")
    (found.folder / "train-00000.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"s3://corpus/blocks/en/train-00000\.safetensors could not be fetched"):
        open_split(found, "train").take(torch.tensor([0]))
