"""Hub ids are fetched by the hub's own library from a server of the tests, in a process of its own: HF_ENDPOINT and
the cache's place are read as that library is imported.
"""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.huggingface.importing import import_hf
from tests.fixtures import forked, once
from tests.huggingface.asking_hub import OFFLINE, ONLINE, ask
from tests.huggingface.checkpoints import make_checkpoint
from tests.huggingface.hub import COMMIT, GATED, SEALED, TOKEN, serving

WANTED: dict[str, tuple[str, str | None]] = {
    "main": ("makers/small-bert", None),
    "tag": ("makers/small-bert", "v1"),
    "gated": (GATED, None),
    "unknown": ("makers/no-such-model", None),
    "revision": ("makers/small-bert", "v2"),
    "pickled": ("makers/pickled", None),
    "sealed": (SEALED, None),
    "wrong": ("not an id", None),
}
"""Names of the imports, with id and revision."""
LATER: dict[str, tuple[str, str | None]] = {"again": WANTED["main"], "never": ("makers/other", "v1")}
"""Those where the hub answers no more."""


class Answers(NamedTuple):
    """What the imports gave by name, the folder that their outputs are in, and what the hub was asked for."""

    folder: Path
    online: dict[str, str]
    offline: dict[str, str]
    endpoint: str
    asked: list[str]


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    """A checkpoint in a folder."""
    return once.folder("checkpoint-for-a-hub", lambda folder: make_checkpoint(folder, "bert"))


@pytest.fixture(scope="module")
def answers(checkpoint: Path) -> Answers:
    """One process asks the hub for all of `WANTED`, with a token, and then asks where nobody answers any more."""
    folder = once.folder("imports-from-a-hub", lambda folder: import_all(checkpoint, folder))
    online, offline = (json.loads((folder / name).read_text()) for name in (ONLINE, OFFLINE))
    return Answers(folder, online, offline, *json.loads((folder / "hub.json").read_text()))


def fill(root: Path, checkpoint: Path) -> None:
    """Put repositories into the hub's folder."""
    whole = shutil.copytree(checkpoint, root / "makers" / "small-bert")
    (whole / "pytorch_model.bin").write_bytes(b"not to be fetched")
    (whole / "onnx").mkdir()
    (whole / "onnx" / "model.safetensors").write_bytes(b"not to be fetched")
    (whole / "README.md").write_text("---\nlicense: mit\n---\n")
    for closed in (GATED, SEALED):
        shutil.copytree(whole, root / closed)
    pickled = shutil.copytree(checkpoint, root / "makers" / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")


def import_all(checkpoint: Path, folder: Path) -> None:
    fill(folder / "hub", checkpoint)
    gone = folder / "gone"
    others = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    with serving(folder / "hub") as hub:
        home = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_TOKEN": TOKEN}
        with mock.patch.dict(os.environ, others | home, clear=True):
            child = forked.start(ask, WANTED, LATER, gone, folder, log=folder / "log")
        child.wait_until((folder / ONLINE).exists)
    gone.touch()
    child.returns()
    (folder / "hub.json").write_text(json.dumps([hub.endpoint, hub.asked]), encoding="utf-8")


def test_a_hub_id_gives_the_primary_that_its_folder_gives(answers: Answers, checkpoint: Path, tmp_path: Path) -> None:
    from_folder = import_hf(str(checkpoint), tmp_path / "folder", "en").primary.fingerprint
    assert answers.online["main"] == answers.online["tag"] == from_folder
    names = ("main", "tag")
    origins = [Artifact.load(answers.folder / name, Kind.PRIMARY).manifest.record["origin"] for name in names]
    origin = {"model_type": "bert", "name": "makers/small-bert", "sha": COMMIT, "licence": "mit", "package": None}
    assert origins == [origin | {"revision": "main"}, origin | {"revision": "v1"}]


def test_only_settings_safetensors_tokenizer_and_card_are_fetched(answers: Answers) -> None:
    fetched = {path for path in answers.asked if path.startswith("/makers/small-bert/resolve/")}
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md")
    assert fetched == {f"/makers/small-bert/resolve/{COMMIT}/{name}" for name in names}


@pytest.mark.parametrize(
    ("name", "reason", "advice"),
    [
        (
            "unknown",
            "makers/no-such-model at revision 'main' cannot be had from http://127.0.0.1",
            "(status 404). Check",
        ),
        ("revision", "at revision 'v2' cannot be had", "it has no such revision. Give a branch, tag or commit of it."),
        ("pickled", "has no model.safetensors", "spaces/safetensors/convert"),
        ("sealed", "it is gated", "set HF_TOKEN to a token that may read it."),
        ("wrong", "not an id at revision 'main' cannot be had", "Check the id and the network"),
    ],
)
def test_ids_that_cannot_be_had_say_why_and_what_to_do(answers: Answers, name: str, reason: str, advice: str) -> None:
    assert answers.online[name].startswith("CheckpointError: ")
    assert reason in answers.online[name]
    assert advice in answers.online[name]
    assert not (answers.folder / name).exists()


def test_the_environments_token_opens_a_gated_id(answers: Answers) -> None:
    assert answers.online["gated"] == answers.online["main"]


def test_without_a_network_what_was_fetched_is_used_and_the_rest_is_refused(answers: Answers) -> None:
    assert answers.offline["again"] == answers.online["main"]
    assert f"makers/other at revision 'v1' cannot be had from {answers.endpoint}" in answers.offline["never"]
    assert "Check the id and the network, or fetch it elsewhere and give its folder." in answers.offline["never"]
