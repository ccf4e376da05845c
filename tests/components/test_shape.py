"""What every component has in common: its image, no packages of its own, and no logic."""

import ast
from pathlib import Path
from types import ModuleType

import pytest
from kfp.dsl.python_component import PythonComponent

from components import compare, data, language, search, source
from components.step import IMAGE
from lingraft.config.cluster import Cluster

MODULES = (compare, data, language, search, source)
FOLDER = Path(data.__file__).parent
STATEMENTS = (ast.ImportFrom, ast.Assign, ast.Expr, ast.Return)
"""All that a component's body may consist of, after its docstring; a condition inside an expression is logic too."""
LOGIC = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Compare)


def _home(module: ModuleType) -> str:
    return Path(module.__file__).stem


def _components(module: ModuleType) -> list[PythonComponent]:
    return [value for value in vars(module).values() if isinstance(value, PythonComponent)]


def _functions(module: ModuleType) -> list[ast.FunctionDef]:
    parsed = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    return [node for node in parsed.body if isinstance(node, ast.FunctionDef)]


EVERY = [(_home(module), function) for module in MODULES for function in _functions(module)]
every_function = pytest.mark.parametrize(
    ("home", "function"), EVERY, ids=[f"{home}.{function.name}" for home, function in EVERY]
)
JOBS = {f"lingraft.jobs.{module}" for module in ("data", "training", "evaluation")}
ALSO = ("pathlib", "lingraft.artifacts.failures")
"""What a component may import beside its function: paths, and what the next step is told."""
RENAMED = {"write_report": "report"}
"""Where a component's name says more than its function's, which stands in `lingraft.steps`."""


def test_no_module_of_components_is_overlooked() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", "step", *map(_home, MODULES)}


@pytest.mark.parametrize("module", MODULES, ids=_home)
def test_every_function_is_a_component(module: ModuleType) -> None:
    names = {component.python_func.__name__ for component in _components(module)}
    assert {function.name for function in _functions(module)} == names


@every_function
def test_a_component_is_a_docstring_imports_paths_and_calls(home: str, function: ast.FunctionDef) -> None:
    assert ast.get_docstring(function)
    assert [type(node) for node in function.body if not isinstance(node, STATEMENTS)] == []
    assert [type(node) for node in ast.walk(function) if isinstance(node, LOGIC)] == []


@every_function
def test_a_component_launches_one_unit_of_work_or_calls_one_step(home: str, function: ast.FunctionDef) -> None:
    """What it launches is made by a class of jobs or steps; a step is in the module that is called as its own."""
    imported = [node for node in function.body if isinstance(node, ast.ImportFrom) and node.module not in ALSO]
    calls = [ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
    if "runner.run" in calls:
        modules = {node.module for node in imported} - {"lingraft.steps"}
        assert modules < {*JOBS, f"lingraft.steps.{home}"}
        assert (len(modules), calls.count("runner.run")) == (1, 1)
        return
    wanted = RENAMED.get(function.name, function.name)
    assert [(node.module, node.names[0].name) for node in imported] == [("lingraft.steps", home)]
    assert [call for call in calls if call.startswith(f"{home}.")] == [f"{home}.{wanted}"]


@pytest.mark.parametrize(
    "component", [one for module in MODULES for one in _components(module)], ids=lambda one: one.name
)
def test_a_component_runs_our_image_and_installs_nothing(component: PythonComponent) -> None:
    container = component.component_spec.implementation.container
    assert container.image == IMAGE == Cluster().image
    assert "pip" not in " ".join(container.command[:-1])
