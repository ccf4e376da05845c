"""Docstrings are sentences about what they stand on, and a class name means one thing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lingraft

ROOT = Path(lingraft.__file__).parent
_PREPOSITIONS = (
    "about above across after against along among around as at before behind below beneath beside between beyond by "
    "despite down during except for from in inside into like near of off on onto out outside over past per since "
    "through throughout till to toward towards under underneath until unto up upon via with within without"
)
_BEGINNING = re.compile(rf"(?i:{'|'.join(_PREPOSITIONS.split())})\b|What\b|Those\b|The same\b")
_Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[Path]:
    """All modules of the library and of the benchmarks."""
    return [path for folder in (ROOT, ROOT.parent / "benchmarks") for path in sorted(folder.rglob("*.py"))]


def named(body: list[ast.stmt], owner: str, is_public: bool = True) -> Iterator[tuple[int, str, str | None, bool]]:
    """Line, name, docstring, and whether a docstring is required, of whatever a body defines."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, _Named):
            name, public = f"{owner}{node.name}", is_public and not node.name.startswith("_")
            overrides = {ast.unparse(each).split(".")[-1] for each in node.decorator_list} & {"override", "overload"}
            yield node.lineno, name, ast.get_docstring(node), public and not overrides
            if isinstance(node, ast.ClassDef):
                yield from named(node.body, f"{name}.", public)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
                yield node.lineno, f"{owner}{ast.unparse(target)}", following.value.value, False


def faults(path: Path) -> Iterator[str]:
    """What is wrong with a module's docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for line, name, text, is_required in [(1, path.stem, ast.get_docstring(tree), True), *named(tree.body, "")]:
        at = f"{path.relative_to(ROOT.parent)}:{line}: {name}"
        if text is None:
            if is_required:
                yield f"{at} has no docstring"
        elif found := _BEGINNING.match(text.strip()):
            yield f"{at}: the docstring begins with {found[0]!r}: {text.strip().splitlines()[0]!r}"
        elif len(text.strip()) < len(name.rpartition(".")[2]):
            yield f"{at}: the docstring {text.strip()!r} is shorter than the name"


def test_docstrings_are_sentences_about_what_they_stand_on() -> None:
    found = [fault for path in modules() for fault in faults(path)]
    assert not found, "\n".join(found)


def test_a_class_name_means_one_thing_in_the_library() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    assert not {name: where for name, where in places.items() if len(where) > 1}
