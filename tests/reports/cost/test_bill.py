"""What each system costs under a recipe: the paper's figures for the paper's settings."""

from pathlib import Path

import pytest

from lingraft.config.encoder import EncoderShape, Family
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.errors import DepthError
from lingraft.model.flops import EXA
from lingraft.reports.cost import Bill, bills

TESTS = Path(__file__).parent
BASE = TESTS.parents[2] / "recipes" / "base.toml"


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.load(TESTS / "section3.toml")


def with_heads(recipe: Recipe, *heads: int) -> Recipe:
    shape: EncoderShape = recipe.encoder.model_copy(update={"mlm_heads": heads})
    return recipe.model_copy(update={"encoder": shape})


def exaflops(bill: Bill) -> dict[str, float]:
    return {run.name: round(run.flops / EXA, 2) for run in bill.runs}


PAPER = {
    System.BL_BASE: {"pretraining": 78.82, "adaptation": 54.05},
    System.BL_SMALL: {"pretraining": 29.34, "adaptation": 21.07},
    System.MINIJOINT: {"pretraining": 83.42, "adaptation": 21.07},
    System.MINIPOST: {"pretraining": 78.82, "step 1b": 21.62, "adaptation": 29.32},
}


@pytest.mark.parametrize("path", [TESTS / "section3.toml", BASE], ids=lambda path: path.stem)
def test_the_four_systems_cost_what_the_paper_says(path: Path) -> None:
    made, left_out = bills(Recipe.load(path))
    assert {bill.system: exaflops(bill) for bill in made} == PAPER
    assert left_out == []


def test_pre_norm_layers_cost_each_system_what_their_widths_and_windows_do(recipe: Recipe) -> None:
    """GeGLU of 2,048 has the weights of a plain layer of 3,072; two of three layers see 192 keys, not 512."""
    modern = recipe.model_copy(
        update={"encoder": recipe.encoder.model_copy(update={"family": Family.model_validate("modern")})}
    )
    for plain, gated in zip(bills(recipe)[0], bills(modern)[0], strict=True):
        assert plain.system is gated.system
        one, other = plain.runs[-1], gated.runs[-1]
        local = sum(number % 3 > 0 for number in range(one.step.layers))
        saved = 2 * local * 512 * 4 * 768 * (512 - 192) * one.work.batch_blocks * one.updates
        assert one.flops - other.flops == pytest.approx(saved)


def test_depths_give_the_papers_costs_of_adaptation(recipe: Recipe) -> None:
    many = with_heads(recipe, 2, 4, 6, 8, 10, 12)
    made, _ = bills(many, (System.MINIJOINT,), (2, 4, 6, 8, 10, 12))
    assert [exaflops(bill)["adaptation"] for bill in made] == [12.82, 21.07, 29.32, 37.56, 45.81, 54.05]
    assert {run.formula for bill in made for run in bill.runs} == {"A1", "A3"}
    assert {len(bill.runs[0].step.heads) for bill in made} == {6}


def test_step_1b_is_billed_by_its_own_section(recipe: Recipe) -> None:
    assert recipe.mini
    mini = recipe.mini.model_copy(update={"steps": 1000, "batch_blocks": 8, "fresh_layers": 1})
    (bill,), _ = bills(recipe.model_copy(update={"mini": mini}), (System.MINIPOST,))
    run = bill.runs[1]
    assert (run.updates, run.work.batch_blocks, run.step.layers, run.formula) == (1000, 8, 5, "A4")
    assert run.flops == 1000 * run.work.graft_flops(1)


def test_systems_that_a_recipe_has_no_settings_for_are_named_with_the_reason(recipe: Recipe) -> None:
    made, left_out = bills(with_heads(recipe.model_copy(update={"mini": None}), 12))
    assert {bill.system for bill in made} == {System.BL_BASE, System.BL_SMALL}
    assert [absent.system for absent in left_out] == [System.MINIJOINT, System.MINIPOST]
    assert "Add 4 to encoder.mlm_heads" in left_out[0].reason
    assert "fresh layers" in left_out[1].reason


@pytest.mark.parametrize(
    ("systems", "depths", "message"),
    [
        ((System.MINIJOINT,), (3,), "at depth 3"),
        ((System.MINIPOST,), (12,), "leaves none"),
        *(((), (4, depth), f"depth {depth} must be") for depth in (0, -1, 13)),
    ],
)
def test_what_no_model_of_the_recipe_has_is_refused(
    recipe: Recipe, systems: tuple[System, ...], depths: tuple[int, ...], message: str
) -> None:
    with pytest.raises(DepthError, match=message):
        bills(recipe, systems, depths)
