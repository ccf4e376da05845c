"""The comparison of the demo with standard adaptation is run again when, and only when, it could come out otherwise."""

import shutil
from pathlib import Path

import pytest

from benchmarks import demo_record
from benchmarks.demo_record import ROOT, Record, fingerprint, require_current
from benchmarks.pages import RECORD_SUFFIX
from lingraft.errors import LingraftError

SMALL = {
    "demo.toml": "steps = 1000\n",
    "constraints.txt": "ruff==1\ntorch==1\n",
    "lingraft/stages/adapt.py": "from lingraft.training import loop\n",
    "lingraft/training/loop.py": "import os\n",
    "lingraft/reports/page.py": "import lingraft.stages.adapt\n",
    **dict.fromkeys(demo_record._CHOOSE, "HIGHEST = 2\n"),
}
"""A tree of few files."""


def of(tree: Path, changes: dict[str, str]) -> str:
    for name, text in {**SMALL, **changes}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    return fingerprint(tree / "demo.toml", tree)


@pytest.mark.parametrize(
    ("file", "text", "counts"),
    [
        ("demo.toml", "steps = 1001\n", True),
        ("lingraft/training/loop.py", "import sys\n", True),
        ("constraints.txt", "ruff==1\ntorch==2\n", True),
        ("pipelines/build.py", "HIGHEST = 3\n", True),
        ("benchmarks/scratch_check.py", "HIGHEST  = 2  # a comment\n", False),
        ("lingraft/reports/page.py", "import sys\n", False),
        ("constraints.txt", "ruff==2\ntorch==1\n", False),
    ],
)
def test_only_what_can_change_the_comparison_changes_its_fingerprint(
    tmp_path: Path, file: str, text: str, counts: bool
) -> None:
    assert (of(tmp_path, {}) != of(tmp_path, {file: text})) == counts


def test_all_that_trains_counts_and_reports_do_not() -> None:
    found = {*demo_record._modules(ROOT)}
    assert {"lingraft.training.loop", "lingraft.model.encoder", "lingraft.training.optimizer"} <= found
    assert "lingraft.model.initialisation.aligned_rows" in found
    assert "lingraft.reports.run.page" not in found


def test_a_record_is_taken_only_while_it_is_of_the_tree_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_record, "_TRAINS", ())
    file, recipe = tmp_path / f"record{RECORD_SUFFIX}", tmp_path / "demo.toml"
    shutil.copy(ROOT / "recipes" / "demo-scratch.toml", recipe)
    with pytest.raises(LingraftError, match=r"no .*record\.json.*make demo-compare demo-record"):
        require_current(recipe, file)
    Record(fingerprint(recipe), ["a check ok"], {}).write(file)
    assert require_current(recipe, file).checks == ["a check ok"]
    recipe.write_text("")
    with pytest.raises(LingraftError, match=r"has changed since .*record\.json\.xz was written"):
        require_current(recipe, file)
