"""The command line: help that teaches, and errors that say what to do."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft._version import __version__
from lingraft.cli import COMMANDS, app, main
from lingraft.errors import LingraftError

ROOT = Path(__file__).parents[2]
STAGES = (
    *("import", "text", "tokenize", "blocks", "pretrain", "mini", "finetune", "evaluate-source"),
    *("adapt", "search-depth", "evaluate", "export", "serve", "report", "verify"),
)

AFTER_AN_ERROR = """
import os, signal, typer
from lingraft.cli import run_app
from lingraft.errors import TrainingError
from lingraft.signals import stop_signals
app = typer.Typer()
@app.command()
def train() -> None:
    with stop_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        raise TrainingError("the loss is not finite")
run_app(app)
"""
WAITING = """
import time, typer
from lingraft.cli import run_app
app = typer.Typer()
@app.command()
def wait() -> None:
    print("waiting", flush=True)
    time.sleep(60)
run_app(app)
"""


def test_help_names_and_explains_every_stage_and_option() -> None:
    everything, exports = (CliRunner().invoke(app, [*of, "--help"]).output for of in ((), ("export",)))
    commands = [[stage] for stage in sorted({*STAGES, *COMMANDS})] + [["export", form] for form in ("onnx", "hf")]
    for command in commands:
        assert f"\n  {command[-1]} " in (everything if len(command) == 1 else exports)
        own = CliRunner().invoke(app, [*command, "--help"])
        assert own.exit_code == 0
        for line in own.output.splitlines():
            if line.startswith("  --") and "--help" not in line:
                assert len(line.split("  ")) > 2, f"{line!r} explains nothing"


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(app, ["version"]).output.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["text", "--recipe", "none.toml", "--language", "de", "--out", "x"], ["none.toml", "recipes/"]),
        (["text", "--recipe", "tests/tiny.toml", "--language", "fr", "--out", "x"], ["'fr'", "targets"]),
        (["tokenize", "--recipe", "tests/tiny.toml", "--text", "tests", "--out", "x"], ["tests", "manifest.json"]),
        (["verify", "docs"], ["docs", "manifest.json"]),
        (
            ["add-language", "--text", "x", "--lang", "de", "--primary", "x", "--revision", "main", "--project", "p"],
            ["--revision is read only with --model"],
        ),
        (["add-language", "--text", "x", "--lang", "de", "--model", "x", "--project", "p"], ["--project", "--results"]),
    ],
)
def test_what_the_user_can_mend_is_a_message(
    arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["lingraft", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 1
    assert any(line.startswith("error: ") for line in told.splitlines())
    for word in words:
        assert word in told


@pytest.mark.parametrize(
    ("command", "options"),
    [("export onnx", []), ("add-language", ["--lang", "de"])],
)
def test_a_command_that_imports_for_seconds_says_first_that_it_starts(
    command: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = ("--primary", "--blocks", "--tokenizer", "--text", "--embeddings", "--out")
    known = CliRunner().invoke(app, [*command.split(), "--help"]).output
    given = [part for name in folders if f"  {name} " in known for part in (name, "none")]
    done = CliRunner().invoke(app, [*command.split(), *options, *given])
    assert isinstance(done.exception, LingraftError), done.output
    assert done.stderr.splitlines()[0] == f"lingraft {command}: starting"


def test_an_unknown_option_ends_with_usage() -> None:
    done = CliRunner().invoke(app, ["adapt", "--dept", "2"])
    assert (done.exit_code, "--dept" in done.stderr) == (2, True)


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_command_that_is_broken_off_says_so_without_a_traceback(asked: signal.Signals, code: int) -> None:
    with _waiting() as process:
        process.send_signal(asked)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (code, "stopped: asked to stop. Run the same again to go on.\n")


def test_a_command_in_the_background_of_a_script_is_not_broken_off_by_ctrl_c() -> None:
    with _waiting("sh", "-c", "trap '' INT; exec \"$@\"", "sh") as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75


@contextlib.contextmanager
def _waiting(*shell: str) -> Iterator[subprocess.Popen[str]]:
    command = [*shell, sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        yield process


def test_what_went_wrong_before_a_stop_is_told_as_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_AN_ERROR], capture_output=True, text=True, check=False, timeout=60
    )
    told = ["error: the loss is not finite", "stopped: asked to stop. Run the same again to go on."]
    assert (done.returncode, done.stderr.splitlines()) == (75, told)
