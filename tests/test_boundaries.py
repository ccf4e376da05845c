"""What may import what, tried in a Python of its own and read from the sources."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lingraft

LIBRARY = Path(lingraft.__file__).parent
BLOCKED = ("kfp", "mlflow", "kserve", "transformers", "onnxruntime", "optuna", "matplotlib", "datasets")
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


@functools.cache
def sources() -> dict[str, str]:
    """Text of the library's modules by their paths in it."""
    return {path.relative_to(LIBRARY).as_posix(): path.read_text("utf-8") for path in sorted(LIBRARY.rglob("*.py"))}


def modules() -> list[str]:
    """Names of all modules, relative to the library; pkgutil would import packages to look into them."""
    names = (path.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for path in sources())
    return [name for name in names if name != "__init__"]


def importers(*packages: str) -> list[str]:
    """Paths of modules that import one of these packages, wherever in them."""
    line = re.compile(rf"^ *(?:import|from) (?:{'|'.join(packages)})\b", re.MULTILINE)
    return [path for path, text in sources().items() if line.search(text)]


def import_without(blocked: tuple[str, ...], *names: str) -> None:
    """Import modules in a Python that has no others of these packages either."""
    command = [sys.executable, "-c", IMPORT_WITHOUT, ",".join(blocked), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_the_core_imports_without_any_extra() -> None:
    core = [name for name in modules() if not name.startswith(NEEDS_AN_EXTRA)]
    assert {"stages.pretrain", "stages.evaluate", "cli", "tasks.examples"} <= {*core}
    import_without(BLOCKED, *(f"lingraft.{name}" for name in core))


def test_steps_import_without_pytorch() -> None:
    """A pipeline has dozens, most of which train nothing, and PyTorch takes seconds."""
    steps = [name for name in modules() if name.startswith("steps.")]
    assert "steps.runner" in steps
    import_without(("torch",), *(f"lingraft.{name}" for name in steps))


def test_text_is_read_and_pipelines_are_submitted_without_pytorch_and_mlflow() -> None:
    """Text is read by many processes, and only the steps of pipelines need what takes seconds."""
    names = ("cli", "data.text", "data.tokenizer.training", "data.cleaning")
    import_without(("torch", "mlflow"), *(f"lingraft.{name}" for name in names), "pipelines.__main__")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("lingraft", ["--help"]), ("lingraft", ["adapt", "--help"]), ("pipelines", ["submit", "--help"])],
)
def test_help_is_printed_without_what_commands_need(module: str, arguments: list[str]) -> None:
    assert imported_by(module, *arguments) & SLOW == set()


def test_a_registry_that_is_not_there_is_refused_without_mlflow(tmp_path: Path) -> None:
    address = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    assert imported_by("lingraft", "registry", "show", code=1, **address) & SLOW == set()
    assert [*tmp_path.iterdir()] == []


def imported_by(module: str, *arguments: str, code: int = 0, **environment: str) -> set[str]:
    """Modules that a program has imported when it ends."""
    program = "import atexit, runpy, sys; atexit.register(lambda: print('\\nimported', *sys.modules))\n"
    program += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
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


def test_the_library_never_imports_kfp() -> None:
    assert importers("kfp", "kfp_kubernetes", "pipelines", "components") == []


@pytest.mark.parametrize(("package", "place"), [("mlflow", "tracking/"), ("optuna", "search/"), ("kserve", "serving/")])
def test_an_optional_package_is_known_to_one_place_only(package: str, place: str) -> None:
    found = importers(package)
    assert found
    assert [path for path in found if not path.startswith(place)] == []


def test_nothing_is_pickled() -> None:
    assert importers("pickle", "joblib", "dill", "cloudpickle") == []
    assert [path for path, text in sources().items() if re.search(r"\btorch\.(?:load|save)\b", text)] == []
