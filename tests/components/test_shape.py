"""What every component has in common: its image, no packages of its own, and no logic."""

import ast
from pathlib import Path
from types import ModuleType

import pytest
from kfp.dsl.python_component import PythonComponent

from components import data, language, source
from components.step import IMAGE
from lingraft.cluster import Cluster

MODULES = (data, language, source)
FOLDER = Path(data.__file__).parent
STATEMENTS = (ast.ImportFrom, ast.Assign, ast.Expr, ast.Return)
"""All that a component's body may consist of, after its docstring; a condition inside an expression is logic too."""
LOGIC = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Compare)


def _components(module: ModuleType) -> list[PythonComponent]:
    return [value for value in vars(module).values() if isinstance(value, PythonComponent)]


def _functions() -> list[ast.FunctionDef]:
    parsed = [ast.parse(Path(module.__file__).read_text(encoding="utf-8")) for module in MODULES]
    return [node for tree in parsed for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_no_module_of_components_is_overlooked() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {
        "__init__",
        "step",
        *(Path(module.__file__).stem for module in MODULES),
    }


def test_every_function_is_a_component() -> None:
    names = {component.python_func.__name__ for module in MODULES for component in _components(module)}
    assert {function.name for function in _functions()} == names


@pytest.mark.parametrize("function", _functions(), ids=lambda function: function.name)
def test_a_component_is_a_docstring_imports_paths_and_calls(function: ast.FunctionDef) -> None:
    assert ast.get_docstring(function)
    assert [type(node) for node in function.body if not isinstance(node, STATEMENTS)] == []
    assert [type(node) for node in ast.walk(function) if isinstance(node, LOGIC)] == []


@pytest.mark.parametrize("function", _functions(), ids=lambda function: function.name)
def test_a_component_calls_one_function_of_the_library(function: ast.FunctionDef) -> None:
    imported = {node.module: node for node in function.body if isinstance(node, ast.ImportFrom)}
    imported.pop("pathlib", None)
    ((module, node),) = imported.items()
    wanted, (name,) = RENAMED.get(function.name, function.name), node.names
    step = f"{module}.{name.name}" if name.name in STEPS else module
    assert step == f"lingraft.steps.{HOMES[function.name]}"
    called = [
        call.func
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func).partition(".")[0] == name.name
    ]
    assert [ast.unparse(each) for each in called] == [wanted if name.name == wanted else f"{name.name}.{wanted}"]


RENAMED = {"export_bundle": "bundle", "write_report": "report"}
"""Where a component's name says more than its function's, which stands in `lingraft.steps`."""
STEPS = ("data", "language", "source")
"""Modules of steps, which components are divided as."""
HOMES = {
    one.python_func.__name__: module.__name__.rpartition(".")[2] for module in MODULES for one in _components(module)
}


@pytest.mark.parametrize(
    "component", [one for module in MODULES for one in _components(module)], ids=lambda one: one.name
)
def test_a_component_runs_our_image_and_installs_nothing(component: PythonComponent) -> None:
    container = component.component_spec.implementation.container
    assert container.image == IMAGE == Cluster().image
    assert "pip" not in " ".join(container.command[:-1])
