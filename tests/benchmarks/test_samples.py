"""Data of a folder: samples of its files, and recipes that name others."""

from pathlib import Path

import pytest

from benchmarks.initialisation.__main__ import RECIPE
from benchmarks.initialisation.data import TAGGED_MB, on_data
from benchmarks.samples import sample
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.errors import RecipeError


def test_a_sample_takes_parts_from_all_over_a_file(tmp_path: Path) -> None:
    write_text(tmp_path / "all.tsv", "\n\n".join(f"part {number}" for number in range(100)) + "\n")
    sample(tmp_path / "all.tsv", 0.00025, tmp_path / "some" / "kept.tsv")
    kept = (tmp_path / "some" / "kept.tsv").read_text(encoding="utf-8").split("\n\n")
    assert (kept[0], kept[1], len(kept)) == ("part 0", "part 4", 25)
    sample(tmp_path / "all.tsv", TAGGED_MB, tmp_path / "whole.tsv")
    assert (tmp_path / "whole.tsv").read_text(encoding="utf-8").count("part") == 100


def test_text_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"\[text\] is of kind 'libreoffice-help'"):
        on_data(Recipe.load(RECIPE), tmp_path, tmp_path)
