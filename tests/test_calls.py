"""Arguments of calls are named where there are many of them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 5
"""Positional arguments of a call that a reader still tells apart."""
VARIADIC = {"apply", "fused", "op", "view"}
"""Functions of PyTorch, and ONNX nodes, whose arguments are a sequence of alike things."""


def long_calls(code: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and sum(not isinstance(argument, ast.Starred) for argument in node.args) > MOST
        and ast.unparse(node.func).rpartition(".")[2] not in VARIADIC
    ]


def test_no_call_has_more_positional_arguments_than_one_can_tell_apart() -> None:
    assert long_calls("f(1, 2, 3, 4, 5)\nf(1, 2, 3, 4, 5, 6)\nx.view(1, 2, 3, 4, 5, 6)") == [2]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("lingraft", "pipelines", "components", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in long_calls(path.read_text(encoding="utf-8"))
    ]
    assert found == []
