"""Every command of docs/guides/publishing.md runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.errors import NotRegisteredError
from lingraft.serving.client import run_server
from tests.tiny import Pieces, Tiny, write_embeddings
from tests.tracking_stores import quiet, sqlite_store

TEXT = (Path(__file__).parents[3] / "docs" / "guides" / "publishing.md").read_text(encoding="utf-8")
BLOCKS = [block.strip().splitlines() for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)]
PREPARED, PUBLISHED, FOLLOWED = BLOCKS


def lingraft(command: str, *more: str) -> str:
    program, *words = shlex.split(command)
    assert program == "lingraft"
    ended = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.integration
def test_a_version_is_published_listed_rolled_back_and_withdrawn(
    started: Path, tiny: Tiny, pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(started, "bundle")
    write_embeddings(pieces.tokenizers["de"], tiny.primary, Path("german"), seed=11)
    add, serve = PREPARED
    lingraft(add)
    bundle, *settings = shlex.split(serve.removeprefix("lingraft serve "))
    with run_server([Path(bundle)], settings=("--no-detect", *settings)):
        publish, ls, rollback, withdraw = PUBLISHED
        assert re.search(r"topic de 1 on \S+: served", lingraft(publish, "--wait=120"))
        assert "topic de serves" in lingraft(ls)
        assert "topic de 2: restore (takes 1 back)" in lingraft(rollback, "--wait=120")
        assert re.search(r"topic de 3 on \S+: done", lingraft(withdraw, "--wait=120"))


@quiet
def test_the_registry_is_asked(started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(started, "bundle")
    [command] = FOLLOWED
    with (
        sqlite_store(tmp_path),
        pytest.raises(NotRegisteredError, match=r"no bundle 'demo-bundle-topic'\. It has none"),
    ):
        lingraft(command, "--once")
    assert not Path("published").exists()
