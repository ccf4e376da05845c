"""The comparison of the demo with standard adaptation is run again when, and only when, it could come out otherwise."""

import shutil
from pathlib import Path

import pytest

from benchmarks.demo_record import ROOT, Record, fingerprint, require_current
from lingraft.errors import LingraftError

TRAINING, REPORT = "lingraft/training/loop.py", "lingraft/reports/run/page.py"
BUILD, CHECK = "pipelines/build.py", "benchmarks/demo_check.py"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what training depends on, and of the rest of the library."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "lingraft", folder / "lingraft", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("constraints.txt", BUILD, CHECK):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "recipes" / "demo.toml", folder)
    return folder


def of(tree: Path) -> str:
    return fingerprint(tree / "demo.toml", tree)


@pytest.fixture(scope="module")
def before(tree: Path) -> str:
    return of(tree)


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("demo.toml", "steps = 1000", "steps = 1001", True),
        (TRAINING, "import ", "import math\nimport ", True),
        ("lingraft/model/kernels/attention.py", "import ", "import math\nimport ", True),
        ("constraints.txt", "torch==", "torch==9.", True),
        (BUILD, "from ", "import math\nfrom ", True),
        (CHECK, "POINTS_BELOW_STANDARD = ", "POINTS_BELOW_STANDARD =  ", False),
        (CHECK, "POINTS_BELOW_STANDARD = 0.02", "POINTS_BELOW_STANDARD = 0.07", True),
        (TRAINING, "import ", "# A comment.\nimport ", False),
        (REPORT, "from ", "import math\nfrom ", False),
        ("constraints.txt", "ruff==", "ruff==9.", False),
    ],
)
def test_only_what_can_change_the_comparison_changes_its_fingerprint(
    tree: Path, before: str, file: str, old: str, new: str, counts: bool
) -> None:
    text = (tree / file).read_text(encoding="utf-8")
    first, _, rest = text.partition(f"\n{old}")
    assert rest
    (tree / file).write_text(f"{first}\n{new}{rest}", encoding="utf-8")
    try:
        assert (of(tree) != before) == counts
    finally:
        (tree / file).write_text(text, encoding="utf-8")


def test_a_record_is_taken_only_while_it_is_of_the_tree_as_it_is(tmp_path: Path) -> None:
    file, recipe = tmp_path / "record.json", tmp_path / "demo.toml"
    shutil.copy(ROOT / "recipes" / "demo.toml", recipe)
    with pytest.raises(LingraftError, match=r"no .*record\.json.*make demo demo-compare demo-record"):
        require_current(recipe, file)
    Record(fingerprint(recipe), ["a check ok"]).write(file)
    assert require_current(recipe, file).checks == ["a check ok"]
    recipe.write_text("")
    with pytest.raises(LingraftError, match=r"has changed since .*record\.json was written"):
        require_current(recipe, file)
