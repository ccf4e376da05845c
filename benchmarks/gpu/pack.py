"""A folder with everything to copy to a machine that has a GPU, and on which nothing can be installed.

It has the sources, wheels of packages that may be missing there, text as blocks, and `run.sh`. What the machine has:
Python 3.12 on x86-64 Linux, and torch, transformers, accelerate, tokenizers, safetensors, sentencepiece, numpy and
onnxruntime with what they need. Wheels are pure Python but for those in `_COMPILED`.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.gpu.comparison import PREPARED, prepare, recipe_of
from benchmarks.samples import sample
from benchmarks.speed.machine import COMMIT_FILE, commit
from lingraft.artifacts.files import require_new, write_text
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import TaskFile
from lingraft.config.text import Folder
from lingraft.errors import LingraftError

MOST_BYTES = 60_000_000
_ROOT = Path(__file__).parents[2]
_SOURCES = ("benchmarks", "lingraft", "recipes")
_PURE = ("annotated-types", "anyascii", "babel", "prometheus_client", "pydantic", "typing-inspection")
_PURE_FOR_SERVING = ("onnx-ir", "typing_extensions")
_COMPILED = ("ml_dtypes", "onnx", "pydantic_core")
_PYTHON, _PLATFORMS = "3.12", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_SCRIPT = """#!/bin/sh
# Unpacks what is beside it, and runs `python -m benchmarks.gpu` with the arguments given; the same again goes on.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
for wheel in wheels/*.whl; do
  [ -e site/.complete ] || [ ! -e "$wheel" ] || "$python" -m zipfile -e "$wheel" site
done
[ -e site/.complete ] || { mkdir -p site; touch site/.complete; }
text=
if [ -e text.tar.xz ]; then
  [ -d text ] || { "$python" -m tarfile -e text.tar.xz unpacked; mv unpacked/text text; }
  text=--text=../text
fi
cd sources
PYTHONPATH=$PWD:$PWD/../site exec "$python" -m benchmarks.gpu --out ../out --page ../out/gpu.md $text "$@"
"""


class PackError(LingraftError):
    """The folder cannot be made."""


def write_pack(folder: Path, data: Path | None, megabytes: float, tiny: bool = False) -> None:
    """Write the folder.

    Args:
        folder: folder that is made.
        data: folder with the text and the tasks' files that recipes/medium.toml names; without it the comparison of
            systems is left out there.
        megabytes: size of the text, of which the source language has half.
        tiny: whether the text is prepared for the recipe at its tiny size.

    Raises:
        PackError: it is larger than it may be, or wheels cannot be fetched.
        LingraftError: the folder exists already, or text cannot be read.
    """
    require_new(folder)
    write_sources(folder)
    _write_wheels(folder / "wheels")
    if data:
        write_prepared_text(folder, data, megabytes, tiny)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise PackError(
            f"{folder} has {size:,} bytes, but may have {MOST_BYTES:,}. Remove it, and give fewer --megabytes."
        )
    print(f"{folder}: {size / 1e6:.1f} MB; copy it, and run ./run.sh --minutes 25 there")


def write_sources(folder: Path) -> None:
    """Write the sources, their commit, and the script that runs them."""
    sources = folder / "sources"
    for name in _SOURCES:
        shutil.copytree(_ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_text(sources / COMMIT_FILE.name, f"{commit() or 'unknown'}\n")
    write_text(folder / "run.sh", _SCRIPT)
    (folder / "run.sh").chmod(0o755)


def _write_wheels(folder: Path) -> None:
    """Fetch wheels, in the versions of the lock, by pip."""
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)$", (_ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    wanted = [f"{name}=={lock[name]}" for name in (*_PURE, *_PURE_FOR_SERVING, *_COMPILED)]
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
    command += ["--python-version", _PYTHON, "--implementation", "cp", "--dest", str(folder), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackError(f"pip cannot fetch wheels for Python {_PYTHON}: {done.stderr.strip()[-1000:]}")


def write_prepared_text(folder: Path, data: Path, megabytes: float, tiny: bool) -> None:
    """Write a sample of the text, cut into blocks, with the tasks' files, as one compressed file."""
    recipe = recipe_of(tiny)
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "text"
        _sample_corpus(recipe, data, megabytes, Path(place))
        prepare(recipe, Path(place), text / PREPARED)
        for name in sorted(set(_task_files(recipe))):
            (text / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(data / name, text / name)
        with tarfile.open(folder / "text.tar.xz", "w:xz", preset=9) as archive:
            archive.add(text, "text")


def _sample_corpus(recipe: Recipe, data: Path, megabytes: float, place: Path) -> None:
    """Keep half of the text in the source language, and the rest in the others alike."""
    if not isinstance(recipe.text, Folder):
        raise PackError(f"[text] of {recipe.name!r} is of kind {recipe.text.kind!r}; only a folder can be packed.")
    for language in recipe.languages:
        share = 0.5 if language == recipe.source.language else 0.5 / len(recipe.targets)
        files = [data / recipe.text.path / f"{language}{ending}" for ending in (".txt.xz", ".txt")]
        found = next((file for file in files if file.exists()), None)
        if found is None:
            raise PackError(f"there is neither {files[0]} nor {files[1]}. Give a folder with the text by --data.")
        sample(found, megabytes * share, place / recipe.text.path / f"{language}.txt")


def _task_files(recipe: Recipe) -> list[str]:
    examples = [getattr(task, name) for task in recipe.tasks for name in ("train", "dev", "test")]
    files = [each.path for each in examples if isinstance(each, TaskFile)]
    return [file.replace("{language}", language) for file in files for language in recipe.languages]
