"""A hub id is fetched by the hub's own library; each of its refusals says why, and what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import filter_repo_objects, hf_raise_for_status

from lingraft.config.tasks import Task, TaskDataset
from lingraft.errors import TextError
from lingraft.huggingface.hub import locate_checkpoint
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from lingraft.tasks.fingerprints import marks_of
from tests.huggingface.checkpoints import Made

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FETCHED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}


def answer(status: int, code: str = "", message: str = "") -> Callable[..., Any]:
    """A hub that answers so, as was recorded of it."""
    headers = {"X-Request-Id": "Root=1-669450a5", "X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    request = httpx2.Request("GET", "https://huggingface.co/api/models/makers/model/revision/main")

    def refuse(*_: object, **__: object) -> None:
        hf_raise_for_status(httpx2.Response(status, headers=headers, request=request))

    return refuse


def raising(error: Exception, cause: Exception | None = None) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise error from cause

    return refuse


@pytest.mark.parametrize("revision", [None, "v1"])
def test_a_hub_id_gives_the_primary_that_its_folder_gives(
    revision: str | None, checkpoints: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(name: str, revision: str, allow_patterns: list[str]) -> str:
        inside = [path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()]
        asked.append((name, revision))
        for file in filter_repo_objects(inside, allow_patterns=allow_patterns):
            (tmp_path / COMMIT).mkdir(exist_ok=True)
            shutil.copy(whole / file, tmp_path / COMMIT / file)
        return str(tmp_path / COMMIT)

    asked: list[tuple[str, str]] = []
    whole = shutil.copytree(checkpoints["bert"].folder, tmp_path / "hub")
    (whole / "pytorch_model.bin").write_bytes(b"not to be fetched")
    (whole / "onnx").mkdir()
    (whole / "onnx" / "model.safetensors").write_bytes(b"not to be fetched")
    (whole / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    made = import_hf("makers/small-bert", tmp_path / "primary", "en", revision).primary
    assert asked == [("makers/small-bert", revision or "main")]
    assert {path.name for path in (tmp_path / COMMIT).iterdir()} == FETCHED
    assert made.fingerprint == import_hf(str(whole), tmp_path / "folder", "en").primary.fingerprint
    origin = {"model_type": "bert", "name": "makers/small-bert", "sha": COMMIT, "licence": "mit", "package": None}
    assert made.manifest.record["origin"] == origin | {"revision": revision or "main"}


@pytest.mark.parametrize(
    ("hub", "reason", "advice"),
    [
        (answer(401, message="Invalid username or password."), "neither such a folder nor such an id (status 401)", ""),
        (answer(404, "RepoNotFound", "Repository not found"), "(status 404). Check the id, or, if it is private", ""),
        (answer(403, "GatedRepo", "Access is restricted"), "it is gated", "set HF_TOKEN to a token that may read it."),
        (answer(404, "RevisionNotFound"), "it has no such revision", "Give a branch, tag or commit of it."),
        (answer(429, message="Too Many Requests"), "429", "Check the id and the network, or fetch it elsewhere"),
        (raising(httpx2.ConnectError("Connection refused")), "Connection refused", "Check the id and the network"),
        (
            raising(LocalEntryNotFoundError("not here"), OfflineModeIsEnabled("unset HF_HUB_OFFLINE.")),
            "unset HF_HUB_OFFLINE. Check the id and the network",
            "fetch it elsewhere and give its folder",
        ),
        (raising(RuntimeError("xet: access denied")), "xet: access denied", "HF_HUB_DISABLE_XET=1"),
    ],
)
def test_ids_that_cannot_be_had_say_why_and_what_to_do(
    hub: Callable[..., Any], reason: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.test")
    with pytest.raises(CheckpointError) as caught:
        locate_checkpoint("makers/model")
    said = str(caught.value)
    assert said.startswith("makers/model at revision 'main' cannot be had from http://hub.test: ")
    assert reason in said
    assert advice in said
    assert ".." not in said


def test_what_is_no_id_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(
        CheckpointError, match=r"not an id at revision 'main' cannot be had from .*Check the id and the"
    ):
        locate_checkpoint("not an id")
    for dataset in ("a b", "a/b/c"):
        with pytest.raises(TextError, match=f"'{dataset}' is neither a folder nor the id of a dataset"):
            mark(dataset)


def mark(dataset: str) -> str:
    source = TaskDataset(kind="huggingface", dataset=dataset, split="test")
    task = Task(name="stars", kind="texts", train=source, dev=source, test=source)
    return marks_of(task, ("test",), "en")["test"]


def test_a_dataset_has_its_commit_as_mark_or_one_that_fits_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha=COMMIT))
    assert mark("makers/reviews") == f"makers/reviews  test {COMMIT}"
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", answer(401))
    assert mark("makers/reviews") != mark("makers/reviews")
