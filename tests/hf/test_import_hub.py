"""Hub ids are fetched by the hub's own library from a server of the tests, in a Python of its own: HF_ENDPOINT and the
cache's place are read as that library is imported.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lingraft.artifact import Artifact, Kind
from lingraft.hf.imported import import_hf
from tests.hf.checkpoints import Made
from tests.hf.hub import COMMIT, GATED, SEALED, TOKEN, Hub, serving

IMPORT = """
import json, sys
from pathlib import Path
from lingraft.errors import LingraftError
from lingraft.hf.imported import import_hf

def said(source, revision, out):
    try:
        return import_hf(source, Path(out), "en", revision).fingerprint
    except LingraftError as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps([said(*wanted) for wanted in json.loads(sys.argv[1])]))
"""


NOBODY = "http://127.0.0.1:9"
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


class Answers(NamedTuple):
    """What the imports gave by name, and the folder that their outputs are in."""

    folder: Path
    online: dict[str, str]
    offline: dict[str, str]


@pytest.fixture(scope="module")
def hub(checkpoints: dict[str, Made], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    whole = shutil.copytree(checkpoints["bert"].folder, root / "makers" / "small-bert")
    (whole / "pytorch_model.bin").write_bytes(b"not to be fetched")
    (whole / "onnx").mkdir()
    (whole / "onnx" / "model.safetensors").write_bytes(b"not to be fetched")
    (whole / "README.md").write_text("---\nlicense: mit\n---\n")
    for closed in (GATED, SEALED):
        shutil.copytree(whole, root / closed)
    pickled = shutil.copytree(checkpoints["bert"].folder, root / "makers" / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with serving(root) as served:
        yield served


@pytest.fixture(scope="module")
def answers(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """One Python asks the hub for all of `WANTED`, with a token; another then asks where nobody answers."""
    folder = tmp_path_factory.mktemp("imports")
    online = run(hub.endpoint, folder, WANTED)
    return Answers(folder, online, run(NOBODY, folder, {"again": WANTED["main"], "never": ("makers/other", "v1")}))


def run(endpoint: str, folder: Path, wanted: dict[str, tuple[str, str | None]]) -> dict[str, str]:
    """What each import gave: the primary's fingerprint, or its error."""
    home = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "home"), "HF_TOKEN": TOKEN}
    others = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    asked = json.dumps([(*wanted[name], str(folder / name)) for name in wanted])
    command = [sys.executable, "-c", IMPORT, asked]
    done = subprocess.run(command, env=others | home, capture_output=True, text=True, check=True)
    return dict(zip(wanted, json.loads(done.stdout), strict=True))


def test_a_hub_id_gives_the_primary_that_its_folder_gives(
    answers: Answers, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    from_folder = import_hf(str(checkpoints["bert"].folder), tmp_path / "folder", "en").fingerprint
    assert answers.online["main"] == answers.online["tag"] == from_folder
    names = ("main", "tag")
    origins = [Artifact.load(answers.folder / name, Kind.PRIMARY).manifest.details["origin"] for name in names]
    origin = {"model_type": "bert", "name": "makers/small-bert", "sha": COMMIT, "licence": "mit"}
    assert origins == [origin | {"revision": "main"}, origin | {"revision": "v1"}]


def test_only_settings_safetensors_tokenizer_and_card_are_fetched(hub: Hub, answers: Answers) -> None:
    fetched = {path for path in hub.asked if path.startswith("/makers/small-bert/resolve/")}
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md")
    assert fetched == {f"/makers/small-bert/resolve/{COMMIT}/{name}" for name in names}


@pytest.mark.parametrize(
    ("name", "reason", "advice"),
    [
        ("unknown", "makers/no-such-model at revision 'main' cannot be had from http://127.0.0.1", "Check the id"),
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
    assert f"makers/other at revision 'v1' cannot be had from {NOBODY}" in answers.offline["never"]
    assert "Check the id and the network, or fetch it elsewhere and give its folder." in answers.offline["never"]
