"""The built wheel in an environment of its own, from an empty folder: a language is added and its model loaded."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import made_up
from tests.fixtures import once
from tests.workshop import Workshop

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guides" / "add-a-language.md").read_text(encoding="utf-8")
EXTRAS = "huggingface,export,cpu"
FOREIGN = {"pytest", "kfp", "mlflow", "kserve", "datasets", "optuna"}
"""Packages of our environment that what was asked for does not bring."""


def attempt(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that knows nothing of this checkout."""
    ours = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    outside = {name: value for name, value in os.environ.items() if name not in ours}
    settings = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=outside | settings, check=False, capture_output=True, text=True
    )


def run(*command: str | Path, cwd: Path) -> str:
    """The same, where it must succeed; returns what it printed."""
    done = attempt(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install_torch(pip: Path, cwd: Path) -> None:
    """The build that we run on ourselves, from where `make install` looks for it."""
    wanted = [pip, "install", "--quiet", "--no-compile", "--no-deps", f"torch=={version('torch')}"]
    index = re.search(r"^TORCH_INDEX \?= (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert index
    if attempt(*wanted, cwd=cwd).returncode != 0:
        run(*wanted, "--extra-index-url", os.environ.get("TORCH_INDEX", index[1]), cwd=cwd)


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The built wheel, made once for all workers."""

    def build(folder: Path) -> None:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)

    [built] = once.folder("wheel", build).iterdir()
    return built


@pytest.fixture(scope="module")
def bin_folder(wheel: Path) -> Path:
    """Programs of an environment that has the wheel, its dependencies, and nothing else."""

    def install(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder / "environment", cwd=folder)
        programs = folder / "environment" / "bin"
        install_torch(programs / "pip", folder)
        run(programs / "pip", "install", "--quiet", "--no-compile", f"{wheel}[{EXTRAS}]", cwd=folder)
        run(programs / "pip", "check", cwd=folder)

    return once.folder("installed-wheel", install) / "environment" / "bin"


@pytest.fixture
def project(workshop: Workshop, tmp_path: Path) -> Path:
    """A folder as the pages have it: a primary, a task of it, and text of a new language."""
    folder = tmp_path / "project"
    shutil.copytree(workshop.primary, folder / "work" / "primary")
    shutil.copytree(workshop.tasks[1], folder / "work" / "task")
    made_up.write(folder / "text", ("tr",))
    return folder


@pytest.mark.nightly
def test_the_environment_has_the_wheel_and_no_more_than_it_asks_for(bin_folder: Path, tmp_path: Path) -> None:
    where = run(bin_folder / "python", "-c", "import lingraft; print(lingraft.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(bin_folder.parent)
    installed = {line.partition("==")[0] for line in run(bin_folder / "pip", "freeze", cwd=tmp_path).splitlines()}
    assert installed & FOREIGN == set()
    assert {"torch", "transformers", "onnx-ir"} <= installed


@pytest.mark.nightly
def test_the_guides_command_and_the_references_python_add_a_language_there(bin_folder: Path, project: Path) -> None:
    adds_a_language([bin_folder / "lingraft"], bin_folder / "python", project)


def test_the_wheel_alone_adds_a_language(wheel: Path, project: Path, tmp_path: Path) -> None:
    """What the wheel has is imported, with the packages of this environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    found = f"import sys; sys.path.insert(0, {str(tmp_path / 'wheel')!r})\n"
    where = run(sys.executable, "-c", f"{found}import lingraft; print(lingraft.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "wheel")
    program = f"{found}from lingraft.__main__ import main; sys.argv[0] = 'lingraft'; main()"
    adds_a_language([sys.executable, "-c", program], Path(sys.executable), project, found)


def adds_a_language(lingraft: Sequence[str | Path], python: Path, project: Path, before: str = "") -> None:
    """Run the guide's command, and the reference's Python on what that has made."""
    [command] = re.findall(r"^lingraft (add-language .*)$", GUIDE, re.MULTILINE)
    [_, code] = re.findall(r"^```python\n(.*?)^```", PYTHON, re.MULTILINE | re.DOTALL)
    summary = run(*lingraft, *command.split(), cwd=project)
    assert re.search(r"^topic: accuracy, \d+ examples +\S+%  +\S+%$", summary, re.MULTILINE)
    assert "lingraft serve work/tr/bundle/topic" in summary
    assert "not " not in summary
    made = sorted(path.name for path in (project / "work" / "tr").iterdir() if path.is_dir())
    assert made == ["blocks", "bundle", "embeddings", "evaluation", "hf", "text", "tokenizer"]
    printed = run(python, "-c", before + code, cwd=project)
    assert printed.startswith(summary.partition("stages: ")[0])
    assert printed.split()[-1] in made_up.TOPICS
