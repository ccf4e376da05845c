"""Progressive depth against fixed depths: run small, for real, and what its page says."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.progressive.arms import DEV_LOSS, FIXED, arms
from benchmarks.progressive.page import gains, languages, of, spread
from benchmarks.progressive_depth import RECIPE, main
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.errors import RecipeError
from lingraft.model.flops import step_flops
from tests.made_up import write
from tests.workshop import Workshop

_TINY = (Path(__file__).parents[1] / "tiny.toml").read_text(encoding="utf-8").split("[search]")[0]
_SWITCH = """
[adaptation.progressive]
kind = "dev_loss"
depths = [1, 2, 3]
look_every_steps = 1
window_looks = 1
"""


def recipe_at(folder: Path) -> Path:
    path = folder / "recipe.toml"
    write_text(path, _TINY.replace("depth = 1\nsteps = 30", "depth = 3\nsteps = 4") + _SWITCH)
    return path


def test_every_arm_takes_the_flops_of_every_other_within_an_update() -> None:
    recipe = Recipe.load(RECIPE)
    update = step_flops(recipe, recipe.steps_over(6)[Stage.ADAPT], recipe.adaptation, 6000)
    made = arms(recipe, 6000, seed=2)
    assert [arm.title for arm in made] == [*(f"depth {depth}" for depth in recipe.encoder.mlm_heads), FIXED, DEV_LOSS]
    assert len({arm.name for arm in made} | {arm.name for arm in arms(recipe, 6000, seed=3)}) == 2 * len(made)
    for arm in made:
        settings, step = arm.recipe.adaptation, arm.recipe.steps_over(arm.depth)[Stage.ADAPT]
        spent = settings.steps * step_flops(arm.recipe, step, settings, 6000)
        assert recipe.adaptation.steps * update - update < spent <= recipe.adaptation.steps * update
        assert settings.warmup_steps == pytest.approx(0.05 * settings.steps, abs=0.5)
        assert settings.seed == 2


def test_a_recipe_that_does_not_go_over_all_heads_is_refused() -> None:
    recipe = Recipe.load(RECIPE)
    plain = recipe.model_copy(update={"adaptation": recipe.adaptation.model_copy(update={"progressive": None})})
    with pytest.raises(RecipeError, match=r"kind = 'dev_loss' and depths = \[1, 2, 3, 4, 6\]"):
        arms(plain, 6000, 1)


def test_it_runs_goes_on_and_writes_what_it_found(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = write(tmp_path / "text", ("en", "de", "tr")), tmp_path / "out"
    given = ["--text", str(text), "--out", str(out), "--recipe", str(recipe_at(tmp_path)), "--seeds", "2"]
    given += ["--languages", "de", "--primary", str(workshop.primary)]
    main(given)
    shown = capsys.readouterr().out
    assert not (out / "primary").exists()
    records = sorted(out.glob("adaptation/de/*/record.json"))
    assert len(records) == 5
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    records[0].unlink()
    main(given)
    assert capsys.readouterr().out == shown
    changed = {path for path in out.rglob("*") if path.is_file() and path.stat().st_mtime_ns != before.get(path)}
    assert changed == {records[0], *(out / f"progressive-depth.{kind}" for kind in ("md", "json.xz", "png"))}
    assert "| progressive, by dev loss |" in shown
    assert str(tmp_path) not in shown


def record(arm: str, seed: int, accuracy: float) -> dict[str, Any]:
    return {"language": "de", "arm": arm, "seed": seed, "accuracy": accuracy}


def test_gains_are_paired_by_seed() -> None:
    found = {"records": [record("depth 2", 1, 0.1), record("depth 2", 2, 0.3)]}
    found["records"] += [record(FIXED, 2, 0.31), record(FIXED, 1, 0.11)]
    assert languages(found) == ["de"]
    assert gains(of(found, "de"), FIXED, "depth 2") == pytest.approx([0.01, 0.01])
    assert spread(gains(of(found, "de"), FIXED, "depth 2"), signed=True) == "+1.00 ± 0.00"
    assert spread([0.123]) == "12.30"
