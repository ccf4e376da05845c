"""The Makefile on folders with odd names: what it runs gets each as one word, and nothing of others is removed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.makefile import ROOT, make

ODD = ["a b", "a  b ", "it's", 'a"b', "a;touch hit", "a$HOME", "a$(shell id)", "#a", "-rf", "ä%20?", "a*"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what `make` reads."""
    folder = tmp_path / "project"
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "lingraft").mkdir()
    shutil.copy(ROOT / "lingraft" / "_version.py", folder / "lingraft")
    (folder / "precious.txt").write_text("mine")
    return folder


@pytest.mark.parametrize("name", ODD)
def test_clean_removes_the_folder_that_it_is_given_and_no_other(project: Path, name: str) -> None:
    results = project / name
    results.mkdir()
    (results / ".lingraft").touch()
    for word in {*name.split(), "a", "b"} - {name}:
        (project / word).mkdir(exist_ok=True)
        (project / word / "thesis.txt").touch()
    before = {path for path in project.rglob("*") if results not in (path, *path.parents)}
    made = make("clean", f"DEMO={name}", folder=project)
    assert made.returncode == 0, made.stderr
    assert {*project.rglob("*")} == before


@pytest.mark.parametrize("name", ODD)
def test_the_demo_gets_each_path_as_one_word(project: Path, name: str) -> None:
    made = make("-n", "demo", f"DEMO={name}", f"RECIPE={name}", f"TEXT={name}", folder=project)
    [line] = [line for line in made.stdout.splitlines() if "-m pipelines demo" in line]
    said = subprocess.run(
        ["bash", "-c", f"python() {{ printf '%s\\n' \"$@\"; }}; {line.replace('.venv/bin/python', 'python')}"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    path = f"./{name}" if name.startswith("-") else name
    assert said.stdout.splitlines() == ["-m", "pipelines", "demo", "--recipe", path, "--out", path, "--text", path]


def test_clean_refuses_what_is_not_ours(project: Path) -> None:
    others = project / "others"
    others.mkdir()
    (others / "thesis.txt").touch()
    made = make("clean", "DEMO=others", folder=project)
    assert (made.returncode != 0, "no file .lingraft" in made.stderr) == (True, True)
    (others / ".lingraft").touch()
    (project / "link").symlink_to(others)
    assert "it is a link" in make("clean", "DEMO=link", folder=project).stderr
    (project / ".lingraft").touch()
    for name in (".", str(project), "../project/"):
        assert "it holds this folder" in make("clean", f"DEMO={name}", folder=project).stderr
    assert (others / "thesis.txt").exists()
    assert (project / "precious.txt").exists()


def test_clean_removes_the_results_of_both_demos(project: Path) -> None:
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / ".lingraft").touch()
    assert make("clean", "DEMO=one", "SCRATCH=two", folder=project).returncode == 0
    assert not {"one", "two"} & {path.name for path in project.iterdir()}


def test_clean_is_content_with_nothing_and_with_an_empty_folder(project: Path) -> None:
    (project / "empty").mkdir()
    for name in ("absent", "empty"):
        assert make("clean", f"DEMO={name}", folder=project).returncode == 0
    assert not (project / "empty").exists()
