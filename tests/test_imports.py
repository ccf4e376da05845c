"""The order of the library: each package imports what stands before it, wherever in a module the import stands.

Imports inside functions and those for types alone count too: what a module needs only sometimes, it still depends on.
"""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lingraft

LIBRARY = Path(lingraft.__file__).parent
ORDER = (
    ("errors", "_version", "ranks", "retry", "signals", "console", "tables"),
    ("config",),
    ("artifacts",),
    ("data",),
    ("model",),
    ("tasks",),
    ("preflight",),
    ("new_recipe",),
    ("training",),
    ("stages",),
    ("huggingface",),
    ("bundle",),
    ("export",),
    ("jobs",),
    ("new_language",),
    ("reports",),
    ("serving",),
    ("search",),
    ("comparison",),
    ("tracking",),
    ("source_model",),
    ("api",),
    ("steps",),
    ("cli",),
    ("", "__main__"),
)
"""Packages and modules directly below `lingraft`; "" is the package itself, whose public names come from the top."""
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}


class Import(NamedTuple):
    """One module of the library imports another; names are relative to `lingraft`."""

    importer: str
    imported: str
    place: str
    """File and line."""


def name_of(path: Path, root: Path = LIBRARY) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def imports_in(path: Path, names: frozenset[str], root: Path = LIBRARY) -> Iterator[Import]:
    """Yield the imports of a module: `from lingraft.data import text` is one of the module `data.text`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for full in found:
            package, _, inner = full.partition(".")
            if package == "lingraft":
                imported = inner if inner in names else inner.rpartition(".")[0]
                yield Import(name_of(path, root), imported, f"{path.relative_to(root.parent)}:{node.lineno}")


@functools.cache
def imports(root: Path = LIBRARY) -> list[Import]:
    paths = sorted(root.rglob("*.py"))
    names = frozenset(name_of(path, root) for path in paths)
    return [found for path in paths for found in imports_in(path, names, root) if found.importer != found.imported]


def layer(module: str) -> str:
    return module.partition(".")[0]


def upward(found: list[Import]) -> list[str]:
    return [
        f"{each.place}: {each.importer or 'lingraft'} imports {each.imported or 'lingraft'}, which stands after it"
        for each in found
        if RANKS[layer(each.importer)] < RANKS[layer(each.imported)]
    ]


def knot(found: list[Import]) -> list[str]:
    """Modules that import each other in a circle, or none."""
    importers: dict[str, set[str]] = {}
    for each in found:
        importers.setdefault(each.importer, set()).add(each.imported)
    try:
        graphlib.TopologicalSorter(importers).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_every_package_has_a_place_in_the_order() -> None:
    assert {layer(name_of(path)) for path in LIBRARY.rglob("*.py")} == RANKS.keys()


def test_no_module_imports_one_that_stands_after_it() -> None:
    assert len(imports()) > 1000
    assert upward(imports()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert knot(imports()) == []


def test_imports_in_functions_and_for_types_alone_count(tmp_path: Path) -> None:
    root = tmp_path / "lingraft"
    for name, text in {
        "config/recipe.py": "def read():\n    from lingraft.data.text import load\n",
        "data/text.py": "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from lingraft.cli import main\n",
        "cli/__init__.py": "import lingraft.config.recipe\n",
    }.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    found = imports(root)
    assert upward(found) == [
        "lingraft/config/recipe.py:2: config.recipe imports data.text, which stands after it",
        "lingraft/data/text.py:3: data.text imports cli, which stands after it",
    ]
    assert set(knot(found)) == {"config.recipe", "data.text", "cli"}
