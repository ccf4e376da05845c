"""Bundles and servers that a run of the tests makes once, for all workers; tests leave them as they are."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from lingraft.export import export_bundle as export
from lingraft.serving.settings import TOKEN_VARIABLE
from pipelines.endpoint import launch_server, stop, wait_until_ready
from tests.fixtures import once
from tests.serving.kinds import export_all
from tests.tiny import TINY, Pieces, Tiny

TOKEN = "tell-me-the-answers"
_READY_S = 120


def bundle() -> Path:
    def make(folder: Path) -> None:
        tiny = Tiny.shared()
        export(tiny.primary, tiny.task, list(tiny.embeddings.values()), folder / "bundle")

    return once.folder("bundle", make, TINY.read_bytes()) / "bundle"


def bundles() -> list[Path]:
    """The same languages under bodies of all kinds of tasks, and under the primary's own."""

    def make(folder: Path) -> None:
        made = export_all(Pieces.shared().recipe, Tiny.shared(), folder)
        (folder / "made.json").write_text(json.dumps([path.name for path in made]))

    folder = once.folder("bundles", make, TINY.read_bytes())
    return [bundle(), *(folder / name for name in json.loads((folder / "made.json").read_bytes()))]


class SharedServer(NamedTuple):
    url: str
    grpc: str
    """Host and port."""
    log: Path
    """All that it says, and what it imports."""


def open_server() -> SharedServer:
    return _server("open-server", bundles(), ["--no-detect"], {"PYTHONPROFILEIMPORTTIME": "1"})


def locked_server() -> SharedServer:
    """Answers those who have the token, by models of all kinds, and finds out languages."""
    return _server("locked-server", bundles(), [], {TOKEN_VARIABLE: TOKEN})


def _server(name: str, served: Sequence[Path], settings: Sequence[str], variables: Mapping[str, str]) -> SharedServer:
    def start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
        with (folder / "log").open("w+b") as log, mock.patch.dict(os.environ, variables):
            server = launch_server(served, log, settings, process_group=0)
            try:
                wait_until_ready(server, _READY_S)
            except BaseException:
                stop(server.process)
                raise
        return server.process, json.dumps([server.url, server.grpc, str(folder / "log")])

    url, grpc, log = json.loads(once.server(name, start))
    return SharedServer(url, grpc, Path(log))
