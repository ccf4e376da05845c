"""`python -m benchmarks.demo_record`: fail unless the demo was compared with standard adaptation as the tree has it.

The comparison trains for minutes and says the same until the recipe, the code that trains, the checks or a dependency
change. What was checked and found is kept with a fingerprint of these, in docs/benchmarks/demo-compare.json.xz;
`make demo-record` writes it anew.
"""

import argparse
import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.pages import RECORD_SUFFIX, read_record, write_record
from lingraft.errors import LingraftError

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "benchmarks" / f"demo-compare{RECORD_SUFFIX}"
RECIPE = ROOT / "recipes" / "demo-scratch.toml"
_TRAINS = (
    "lingraft.data.text",
    "lingraft.data.tokenizer.tokenizer",
    "lingraft.stages.pretrain",
    "lingraft.stages.build_mini",
    "lingraft.stages.finetune",
    "lingraft.stages.initialise",
    "lingraft.stages.adapt",
    "lingraft.stages.evaluate",
)
_CHOOSE = (
    *(f"lingraft/jobs/{module}.py" for module in ("job", "data", "training", "evaluation")),
    "pipelines/build.py",
    "benchmarks/scratch_check.py",
    "benchmarks/demo_compare.py",
)
"""Files that decide what is trained and what is checked, but import much that decides neither."""
_DEPENDENCIES = ("numpy", "sentencepiece", "tokenizers", "torch")


class Record(NamedTuple):
    """Results of a comparison, and the recipe and code that they are of."""

    fingerprint: str
    checks: list[str]
    table: dict[str, dict[str, dict[str, float | None]]]
    """Scores by system and language, as `benchmarks.demo_compare` found them."""

    @classmethod
    def load(cls, file: Path = RECORD) -> "Record":
        """Read the record of the last comparison.

        Raises:
            LingraftError: there is none.
        """
        if not file.exists():
            raise LingraftError(f"there is no {file}. Run `make demo-compare demo-record`.")
        return cls(**read_record(file))

    def write(self, file: Path = RECORD) -> None:
        """Write it in place of the last one."""
        write_record(file, self._asdict())


def fingerprint(recipe: Path = RECIPE, root: Path = ROOT) -> str:
    """Hash of the recipe, of the code that trains and checks, without its comments, and of what that depends on."""
    digest = hashlib.sha256(recipe.read_bytes())
    code = _modules(root) | {name: ast.parse((root / name).read_bytes()) for name in _CHOOSE}
    for name, tree in sorted(code.items()):
        digest.update(f"{name}\0{ast.dump(tree)}\0".encode())
    lock = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    digest.update("\n".join(line for line in lock if line.partition("==")[0] in _DEPENDENCIES).encode())
    return digest.hexdigest()


def _modules(root: Path) -> dict[str, ast.Module]:
    """Parse the modules of the library that the stages of a training import, and those that these import.

    The package's own `__init__` is none of them: it leads to everything, lazily.
    """
    found: dict[str, ast.Module] = {}
    coming = [*_TRAINS]
    while coming:
        module = coming.pop()
        if module in found or not module.startswith("lingraft.") or not (file := _file_of(module, root)):
            continue
        found[module] = ast.parse(file.read_bytes())
        coming += [module.rpartition(".")[0], *_imported(found[module])]
    return found


def _file_of(module: str, root: Path) -> Path | None:
    place = root.joinpath(*module.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _imported(code: ast.Module) -> Iterator[str]:
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def require_current(recipe: Path = RECIPE, file: Path = RECORD) -> Record:
    """Return the record, if it is of the tree as it is.

    Raises:
        LingraftError: it is not, or there is none.
    """
    record = Record.load(file)
    if record.fingerprint != fingerprint(recipe):
        raise LingraftError(
            f"the demo's recipe or the code that trains has changed since {file} was written. "
            "Run `make demo-compare demo-record`."
        )
    return record


def main() -> None:
    """Say whether the record is of the tree as it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="the demo's recipe")
    try:
        print(*require_current(parser.parse_args().recipe).checks, sep="\n")
    except LingraftError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
