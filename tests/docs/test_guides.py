"""Commands of the guides that need a registry or a package: run with stand-ins, or at least parsed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lingraft.cli import app

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BIN = Path(sys.executable).parent
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
[JUDGE] = (block.strip().splitlines() for block in _BLOCK.findall((GUIDES / "registry.md").read_text("utf-8")))
[FETCH] = _BLOCK.findall((GUIDES / "alignment.md").read_text("utf-8"))


def run(command: str, folder: Path, programs: Path = BIN) -> str:
    path = os.pathsep.join((str(programs), str(BIN), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("command", JUDGE)
def test_the_command_line_takes_the_command(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "lingraft"
    found: Any = typer.main.get_command(app)
    while hasattr(found, "resolve_command"):
        program, found, words = found.resolve_command(found.make_context(program, [], resilient_parsing=True), words)
    found.make_context(program, words)


def test_a_dictionary_is_fetched_without_installing_it(tmp_path: Path) -> None:
    control = tmp_path / "package" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: dict-freedict-eng-deu\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.org>\nDescription: d\n"
    )
    index = tmp_path / "package" / "usr" / "share" / "dictd" / "freedict-eng-deu.index"
    index.parent.mkdir(parents=True)
    index.write_text("")
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(f'#!/bin/sh\n[ "$1" = download ] && dpkg-deb -b {tmp_path}/package "$2_1_all.deb"\n')
    apt.chmod(0o755)
    run(FETCH, tmp_path, apt.parent)
    assert (tmp_path / "freedict" / "usr" / "share" / "dictd" / index.name).exists()
