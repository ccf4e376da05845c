"""What may import what, tried in a Python of its own and read from the sources."""

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lingraft

LIBRARY = Path(lingraft.__file__).parent
BLOCKED = ("kfp", "mlflow", "kserve", "transformers", "tokenizers", "onnxruntime", "optuna", "matplotlib", "datasets")
SLOW = {"torch", "numpy", "mlflow", "kfp", "kfp_server_api", "tqdm", "safetensors", "lingraft.config.recipe"}
"""What takes a tenth of a second or more to import, or brings it."""
NEEDS_AN_EXTRA = (
    "tracking",
    "steps",
    "search",
    "bundle.runtime",
    "export",
    "serving",
    "reports.run",
    "reports.plotting",
)

IMPORT_WITHOUT = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not to be imported")

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
print(sorted(BLOCKED & {name.partition(".")[0] for name in sys.modules}))
"""


def modules() -> list[str]:
    """All modules by their files: pkgutil would import packages to look into them."""
    paths = [path.relative_to(LIBRARY.parent).with_suffix("") for path in sources()]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return sorted(names - {"lingraft"})


def free_of_extras(name: str) -> bool:
    return not name.removeprefix("lingraft.").startswith(NEEDS_AN_EXTRA)


def import_without(blocked: tuple[str, ...], *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IMPORT_WITHOUT, ",".join(blocked), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imported_in(path: Path) -> set[str]:
    """Top-level packages that a source file imports, wherever in it."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def sources() -> list[Path]:
    return sorted(LIBRARY.rglob("*.py"))


def test_the_core_imports_without_any_extra() -> None:
    core = [name for name in modules() if free_of_extras(name)]
    assert {"lingraft.stages.pretrain", "lingraft.stages.evaluate", "lingraft.cli", "lingraft.tasks.examples"} <= set(
        core
    )
    run = import_without(BLOCKED, *core)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "[]", "")


def test_steps_import_without_pytorch() -> None:
    """A pipeline has dozens, most of which train nothing, and PyTorch takes seconds."""
    steps = [name for name in modules() if name.startswith("lingraft.steps.")]
    assert len(steps) > 5
    done = import_without(("torch",), *steps, "lingraft.steps.launch.launcher")
    assert done.returncode == 0, done.stderr


def test_text_is_read_without_pytorch_and_commands_are_explained_without() -> None:
    """Text is read by many processes, and `--help` is to come at once."""
    names = ("cli", "data.text", "data.tokenizer.tokenizer", "data.preprocessing")
    done = import_without(("torch", "fsspec"), *(f"lingraft.{name}" for name in names))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["registry", "ls", "--help"], ["adapt", "--help"], ["version"]])
def test_help_is_printed_without_what_commands_need(arguments: list[str]) -> None:
    program = "import sys; from lingraft.__main__ import main; sys.argv[0] = 'lingraft'; main()"
    assert _imported_by(program, *arguments) & SLOW == set()


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["submit", "--help"]])
def test_help_of_pipelines_is_printed_without_what_they_need(arguments: list[str]) -> None:
    assert _imported_by("import runpy; runpy.run_module('pipelines', run_name='__main__')", *arguments) & SLOW == set()


def test_a_registry_that_is_not_there_is_refused_without_mlflow(tmp_path: Path) -> None:
    program = "from lingraft.__main__ import main; main()"
    address = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    found = _imported_by(program, "registry", "ls", code=1, **address)
    assert found & SLOW == set()
    assert [*tmp_path.iterdir()] == []


def _imported_by(program: str, *arguments: str, code: int = 0, **environment: str) -> set[str]:
    """Modules that a program has imported when it ends."""
    listing = "import atexit, sys; atexit.register(lambda: print('\\nimported', *sys.modules))\n"
    done = subprocess.run(
        [sys.executable, "-c", listing + program, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    first, *names = done.stdout.splitlines()[-1].split()
    assert first == "imported"
    assert "typer" in names
    return set(names)


def test_pipelines_are_compiled_and_submitted_without_pytorch_and_mlflow() -> None:
    """Only their steps need them, and both take seconds."""
    done = import_without(("torch", "mlflow"), "pipelines.__main__")
    assert done.returncode == 0, done.stderr


def test_the_block_itself_works() -> None:
    run = import_without(BLOCKED, "transformers")
    assert run.returncode == 1
    assert "transformers is not to be imported" in run.stderr


def test_the_library_never_imports_kfp() -> None:
    assert len(sources()) > 30
    assert [
        path.name for path in sources() if imported_in(path) & {"kfp", "kfp_kubernetes", "pipelines", "components"}
    ] == []


@pytest.mark.parametrize(
    ("package", "allowed"), [("mlflow", {"tracking/"}), ("optuna", {"search/"}), ("kserve", {"serving/"})]
)
def test_an_optional_package_is_known_to_one_place_only(package: str, allowed: set[str]) -> None:
    places = {path.relative_to(LIBRARY).as_posix() for path in sources() if package in imported_in(path)}
    assert places
    assert {place for place in places if not place.startswith(tuple(allowed))} == set()


def test_nothing_is_pickled() -> None:
    assert [path.name for path in sources() if imported_in(path) & {"pickle", "joblib", "dill", "cloudpickle"}] == []
    unsafe = {"load", "save"}
    calls = [
        f"{path.name}:{node.lineno}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in unsafe
        if isinstance(node.value, ast.Name) and node.value.id == "torch"
    ]
    assert calls == []
