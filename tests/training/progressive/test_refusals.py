"""Progressive adaptations that cannot be are refused, with what is wrong and what to do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.errors import DepthError, RecipeError
from lingraft.steps import language
from tests.training.progressive.project import DEV_LOSS, FIXED, learned, progressive
from tests.workshop import Workshop

BUILDING = {"steps": 6, "batch_blocks": 16, "learning_rate": 3e-3, "fresh_layers": 2}


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        (FIXED | {"depths": [2, 1, 3]}, "depths [2, 1, 3] must be one or more, each deeper than the one before"),
        (FIXED | {"depths": []}, "depths [] must be one or more"),
        (
            FIXED | {"depths": [1, 2], "shares": []},
            "progressive.depths [1, 2] must end with depth 3, whose updates `steps` counts",
        ),
        (FIXED | {"depths": [1, 3]}, "shares [0.25, 0.25, 0.5] must be 2, one a depth"),
        (FIXED | {"shares": [0.5, 0.5, 0.5]}, "that add up to 1; they add up to 1.5"),
        (
            FIXED | {"threshold": 0.5},
            "adaptation.progressive.threshold: unknown key. Allowed here: depths, kind, shares.",
        ),
        (DEV_LOSS | {"shares": [1.0]}, "adaptation.progressive.shares: unknown key"),
        ({"depths": [1, 3]}, "adaptation.progressive.kind: missing. Allowed here: fixed, dev_loss."),
    ],
)
def test_a_switch_that_cannot_be_is_refused_with_the_recipe(
    workshop: Workshop, switch: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        progressive(workshop.recipe, switch)
    assert words in str(refused.value)


def test_a_primary_without_a_head_at_a_depth_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    recipe = progressive(workshop.recipe, FIXED)
    assert recipe.adaptation.progressive
    deeper = recipe.adaptation.progressive.model_copy(update={"depths": (1, 2, 4)})
    other = recipe.adaptation.model_copy(update={"progressive": deeper})
    with pytest.raises(DepthError, match="depth 4 must be from 1 to the primary's 3 layers"):
        learned(workshop, recipe.model_copy(update={"adaptation": other}), tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": {"mlm_heads": [1, 3]}}, r"adaptation\.progressive\.depths \[1, 2, 3\] must be among .* \[1, 3\]"),
        ({"search": {"language": "de", "steps_at_depth": 8}}, r"progressive does not go with \['search'\]"),
        ({"paper": {"systems": ["MINIJOINT"]}}, r"adaptation.progressive does not go with \['paper'\]"),
        ({"system": "BL_BASE"}, "adaptation.progressive needs mini-models; system BL_BASE has none"),
    ],
)
def test_what_does_not_go_with_a_switch_is_refused_with_the_recipe(
    workshop: Workshop, changes: dict[str, Any], words: str
) -> None:
    raw = progressive(workshop.recipe, FIXED).model_dump(mode="json")
    changes |= {"encoder": raw["encoder"] | changes.get("encoder", {})}
    with pytest.raises(RecipeError, match=words):
        Recipe.parse(raw | changes)


def test_a_depth_that_gets_no_update_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    recipe = progressive(workshop.recipe, FIXED | {"shares": [0.02, 0.48, 0.5]}, steps=3, warmup_steps=0)
    with pytest.raises(
        RecipeError, match=r"gives depths \[1, 2, 3\] \[0, 2, 1\] updates .* of 3 over 3\. Each needs 1"
    ):
        learned(workshop, recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_under_another_depth_or_system_a_recipe_has_one_depth(workshop: Workshop) -> None:
    recipe = progressive(workshop.recipe, FIXED)
    assert recipe.for_system(System.MINIJOINT).adaptation.progressive == recipe.adaptation.progressive
    assert recipe.for_system(System.MINIJOINT, 2).adaptation.progressive is None
    assert recipe.for_system(System.BL_BASE).adaptation.progressive is None


def test_a_mini_model_that_is_not_asked_for_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"MINIJOINT over depths \[1, 2, 3\] needs 0 mini-models .* but got 1"):
        learned(workshop, progressive(workshop.recipe, FIXED), tmp_path / "out", minis=[tmp_path / "mini"])


def depths_of(recipe: Recipe, compare: bool, folder: Path) -> Sequence[int]:
    choice = language.DepthChoice(recipe=recipe, language="de", compare=compare, out=folder)
    return language.choose_depths(choice)


def test_pipelines_do_not_compare_it_with_what_stands_in_its_own_place(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="ends at depth 3, all layers, stands where standard adaptation"):
        depths_of(progressive(workshop.recipe, FIXED), compare=True, folder=tmp_path)


def test_pipelines_build_one_mini_model_of_step_1b_and_say_so(workshop: Workshop, tmp_path: Path) -> None:
    raw = progressive(workshop.recipe, {"kind": "fixed", "depths": [1, 2]}, depth=2).model_dump(mode="json")
    recipe = Recipe.parse(raw | {"mini": BUILDING, "system": "MINIPOST"})
    with pytest.raises(
        RecipeError, match=r"pipelines build one MINIPOST mini-model, but depths \[1, 2\] need one each"
    ):
        depths_of(recipe, compare=False, folder=tmp_path)
