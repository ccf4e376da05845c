"""The four systems as data, and what a recipe makes of them (paper section 2, figure 2)."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step, System, TrainedPart, steps_of
from lingraft.errors import DepthError, RecipeError

ROOT = Path(__file__).parents[2]
TINY = tomllib.loads((ROOT / "tests/tiny.toml").read_text())
MINI = {"steps": 4, "batch_blocks": 4, "learning_rate": 1e-3, "fresh_layers": 2}
EVERYTHING, EMBEDDINGS, BODY = TrainedPart.EVERYTHING, TrainedPart.EMBEDDINGS, TrainedPart.BODY


def recipe(**changes: Any) -> Recipe:
    """The tiny recipe, 3 layers with heads at each, with a [mini], and changed sections; None leaves one out."""
    raw = TINY | {"mini": MINI} | changes
    return Recipe.parse({key: value for key, value in raw.items() if value is not None})


def refusal(**changes: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe(search=None, **changes)
    return str(caught.value)


def depth(value: int) -> dict[str, Any]:
    return TINY["adaptation"] | {"depth": value}


def step(stage: Stage, trained: TrainedPart, layers: int, heads: tuple[int, ...] = (), fresh: int = 0) -> Step:
    return Step(stage, trained, layers, heads, fresh)


PAPER = {
    System.BL_BASE: [
        step(Stage.PRETRAIN, EVERYTHING, 12, (12,)),
        step(Stage.ADAPT, EMBEDDINGS, 12, (12,)),
        step(Stage.FINETUNE, BODY, 12),
    ],
    System.BL_SMALL: [
        step(Stage.PRETRAIN, EVERYTHING, 4, (4,)),
        step(Stage.ADAPT, EMBEDDINGS, 4, (4,)),
        step(Stage.FINETUNE, BODY, 4),
    ],
    System.MINIJOINT: [
        step(Stage.PRETRAIN, EVERYTHING, 12, (4, 12)),
        step(Stage.ADAPT, EMBEDDINGS, 4, (4,)),
        step(Stage.FINETUNE, BODY, 12),
    ],
    System.MINIPOST: [
        step(Stage.PRETRAIN, EVERYTHING, 12, (12,)),
        step(Stage.BUILD_MINI, TrainedPart.FRESH_LAYERS, 6, (6,), 2),
        step(Stage.ADAPT, EMBEDDINGS, 6, (6,), 2),
        step(Stage.FINETUNE, BODY, 12),
    ],
}


@pytest.mark.parametrize("system", System)
def test_steps_are_those_of_the_papers_table(system: System) -> None:
    assert steps_of(system, 12, 4, fresh_layers=2) == {one.stage: one for one in PAPER[system]}


@pytest.mark.parametrize("system", System)
@pytest.mark.parametrize("wrong", [0, 13])
def test_a_depth_outside_the_primary_is_refused(system: System, wrong: int) -> None:
    with pytest.raises(DepthError, match=rf"depth {wrong} must be from 1 to the primary's 12 layers"):
        steps_of(system, 12, wrong, fresh_layers=2)


def test_a_minipost_mini_model_leaves_a_layer_out() -> None:
    with pytest.raises(DepthError, match=r"of depth 12 leaves none .* Choose a depth from 1 to 11"):
        steps_of(System.MINIPOST, 12, 12, fresh_layers=2)
    assert steps_of(System.MINIPOST, 12, 11, fresh_layers=1)[Stage.ADAPT].layers == 12


def test_a_minipost_mini_model_without_fresh_layers_is_the_bottom_as_it_is() -> None:
    steps = steps_of(System.MINIPOST, 12, 4, fresh_layers=0)
    assert Stage.BUILD_MINI not in steps
    assert (steps[Stage.ADAPT].layers, steps[Stage.ADAPT].heads) == (4, ())


@pytest.mark.parametrize(
    ("system", "layers", "heads", "bottom"),
    [
        (System.BL_BASE, 3, (3,), 3),
        (System.BL_SMALL, 1, (1,), 1),
        (System.MINIJOINT, 3, (1, 2, 3), 1),
        (System.MINIPOST, 3, (3,), 1),
    ],
)
def test_a_project_under_another_system_has_that_systems_primary_and_depth(
    system: System, layers: int, heads: tuple[int, ...], bottom: int
) -> None:
    whole = recipe(paper={})
    other = whole.for_system(system)
    assert (other.system, other.encoder.layers, other.encoder.mlm_heads) == (system, layers, heads)
    assert (other.primary_shape, other.adaptation.depth) == (other.encoder, bottom)
    assert other.encoder == whole.encoder.cut(layers, heads)
    assert other.builds_mini == (system is System.MINIPOST)
    steps = other.steps_over(bottom)
    assert steps[Stage.ADAPT] == whole.steps_over(1, system)[Stage.ADAPT]


@pytest.mark.parametrize("system", System)
def test_a_project_under_another_system_is_a_recipe_that_a_component_can_read(system: System) -> None:
    other = recipe(paper={}).for_system(system)
    assert Recipe.parse(other.to_json()) == other
    assert other.paper is None
    assert (other.search is not None) == (system is System.MINIJOINT)


def test_minipost_needs_to_know_how_its_mini_model_is_built() -> None:
    assert "system MINIPOST needs a section [mini]" in refusal(system="MINIPOST", mini=None)
    assert "system MINIPOST needs a section [mini]" in refusal(paper={"systems": ["BL_BASE", "MINIPOST"]}, mini=None)
    assert recipe(paper={"systems": ["BL_BASE", "MINIJOINT"]}, mini=None).paper


def test_a_minipost_depth_that_leaves_no_layer_out_is_refused() -> None:
    message = refusal(system="MINIPOST", adaptation=depth(3))
    assert "adaptation.depth: a MINIPOST mini-model of depth 3 leaves none of the primary's 3 layers out" in message
    assert "leaves none" in refusal(adaptation=depth(3), paper={})


def test_only_minipost_does_without_a_head_at_its_depth() -> None:
    encoder = TINY["encoder"] | {"mlm_heads": [3]}
    assert recipe(system="MINIPOST", encoder=encoder, search=None).adaptation.depth == 1
    assert "adaptation.depth [1] must be among encoder.mlm_heads [3]" in refusal(encoder=encoder)


@pytest.mark.parametrize("system", [System.BL_BASE, System.BL_SMALL])
def test_a_search_under_a_system_without_mini_models_is_refused(system: System) -> None:
    with pytest.raises(RecipeError, match=rf"MINIJOINT or MINIPOST; system is {system}"):
        recipe(system=system, adaptation=depth(3) if system is System.BL_BASE else TINY["adaptation"])


def test_a_search_under_minipost_must_name_the_depths_that_are_built() -> None:
    with pytest.raises(RecipeError, match=r"search\.depths must name the depths"):
        recipe(system=System.MINIPOST)
    named = recipe(system="MINIPOST", search=TINY["search"] | {"depths": [1, 2]})
    assert named.searched_depths == (1, 2)


@pytest.mark.parametrize("key", ["systems", "depths", "pretraining_seeds"])
def test_the_paper_compares_each_thing_once(key: str) -> None:
    value = "BL_BASE" if key == "systems" else 1
    message = refusal(paper={key: [value, value]})
    assert f"paper: {key} [{value}, {value}] must be one or more, all different" in message


@pytest.mark.parametrize(
    ("every", "early", "expected"),
    [
        (0, [], ()),
        (12, [], (0, 12, 24, 30)),
        (10, [2, 5, 10], (0, 2, 5, 10, 20, 30)),
        (0, [5, 99], (0, 5, 30)),
    ],
)
def test_checkpoints_are_kept_from_the_initialisation_to_the_last_update(
    every: int, early: list[int], expected: tuple[int, ...]
) -> None:
    kept = {"checkpoint_every_steps": every, "early_checkpoints": early}
    adaptation = recipe(adaptation=depth(1) | kept).adaptation
    assert adaptation.steps == 30
    assert adaptation.checkpoint_steps == expected


def test_a_system_may_be_looked_at_more_often_than_the_others() -> None:
    adaptation = TINY["adaptation"] | {"steps": 6, "checkpoint_every_steps": 3}
    paper = {"checkpoint_every_steps": {"BL_BASE": 2}}
    made = recipe(adaptation=adaptation, paper=paper)
    looked_at = {system: made.for_system(system).adaptation.checkpoint_steps for system in System}
    assert looked_at[System.BL_BASE] == (0, 2, 4, 6)
    assert {looked_at[system] for system in System if system is not System.BL_BASE} == {(0, 3, 6)}


def test_standard_adaptation_over_fewer_than_all_layers_is_refused() -> None:
    assert "adaptation.depth must be 3, all layers" in refusal(system="BL_BASE", adaptation=depth(1))


def test_the_papers_depths_need_heads() -> None:
    encoder = TINY["encoder"] | {"mlm_heads": [1, 3]}
    assert "paper.depths [2] must be among encoder.mlm_heads [1, 3]" in refusal(encoder=encoder, paper={"depths": [2]})
