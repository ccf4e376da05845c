"""Progressive adaptation over MINIPOST's mini-models, each built by a step 1b of its own."""

from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.errors import DepthError, RecipeError
from lingraft.model.flops import flops_per_update
from lingraft.reports.cost.bill import bills
from lingraft.stages import build_mini, pretrain
from lingraft.stages.adapt import adapt
from lingraft.stages.evaluate import evaluate_language
from lingraft.stages.results import load_language
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once
from tests.training.progressive.project import phases, progressive
from tests.training.progressive.test_refusals import BUILDING
from tests.workshop import Workshop, changed

SWITCH = {"kind": "fixed", "depths": [1, 2]}


def minipost(workshop: Workshop) -> Recipe:
    raw = progressive(workshop.recipe, SWITCH, depth=2).model_dump(mode="json")
    return Recipe.parse(raw | {"mini": BUILDING, "system": "MINIPOST"})


@pytest.fixture(scope="module")
def built(workshop: Workshop) -> dict[str, Path]:
    """An ordinary primary, and a mini-model of it at depths 1 and 2."""
    recipe = minipost(workshop)

    def make(folder: Path) -> None:
        short = changed(recipe, "pretraining", steps=4, warmup_steps=0)
        pretrain.pretrain(short, workshop.blocks["en"], workshop.tokenizers["en"], folder / "primary", ignore_metrics)
        for depth in (1, 2):
            own = changed(recipe, "adaptation", depth=depth, progressive=None)
            build_mini.build_mini(
                own, folder / "primary", workshop.blocks["en"], folder / f"mini-{depth}", ignore_metrics
            )

    folder = once.folder("built", make, recipe.to_json())
    return {name: folder / name for name in ("primary", "mini-1", "mini-2")}


def test_it_goes_over_one_mini_model_after_the_other_and_is_judged_on_the_last(
    workshop: Workshop, built: dict[str, Path], tmp_path: Path
) -> None:
    recipe, out = minipost(workshop), tmp_path / "de"
    given = built["primary"], workshop.blocks["de"], workshop.tokenizers["de"], 2, out, ignore_metrics
    made = adapt(recipe, *given, minis=[built["mini-1"], built["mini-2"]])
    bill, _ = bills(recipe, (System.MINIPOST,))
    runs = {run.name: run for run in bill[0].runs}
    assert [phase["depth"] for phase in phases(out)] == [1, 2]
    for phase in phases(out):
        run = runs[f"adaptation at depth {phase['depth']}"]
        assert run.step.layers == phase["depth"] + 2
        assert phase["steps"] == run.updates
        assert phase["flops"] == pytest.approx(run.updates * flops_per_update(run.step, run.work))
    assert [run.step.layers for run in bill[0].runs if run.name == Stage.BUILD_MINI] == [3, 4]
    folders = workshop.texts["de"], workshop.blocks["de"], tmp_path / "result", built["mini-2"]
    recipe = recipe.model_copy(update={"tasks": ()})
    evaluate_language(recipe, built["primary"], out, [], *folders)
    result = load_language(tmp_path / "result")
    assert (result.shallower, result.depth, result.fresh_layers, result.standard) == ((1,), 2, 2, False)
    assert result.cost == made.manifest.cost


def test_without_a_mini_model_of_each_depth_it_does_not_begin(
    workshop: Workshop, built: dict[str, Path], tmp_path: Path
) -> None:
    given = built["primary"], workshop.blocks["de"], workshop.tokenizers["de"], 2, tmp_path / "de", ignore_metrics
    with pytest.raises(RecipeError, match=r"over depths \[1, 2\] needs 2 mini-models.* got 1.*--shallower-mini"):
        adapt(minipost(workshop), *given, minis=[built["mini-2"]])
    with pytest.raises(DepthError, match=r"mini-2 is a mini-model of 2 \+ 2 layers, but 3 of which 2 are fresh"):
        adapt(minipost(workshop), *given, minis=[built["mini-2"], built["mini-2"]])
