"""The plan of a comparison: everything once, and shared where systems can share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.manifest import Kind
from lingraft.comparison.plan import Arm, Comparison, comparison_of_arms, plan_comparison
from lingraft.comparison.runner import comparison_jobs
from lingraft.config.initialisation import Initialisation
from lingraft.config.systems import System
from lingraft.errors import RecipeError
from tests.comparison.project import ARMS, recipe
from tests.workshop import changed


def plan(folder: Path, **changes: Any) -> Comparison:
    return plan_comparison(recipe(folder, **changes))


def test_every_system_is_an_arm_and_minijoint_one_at_every_depth(tmp_path: Path) -> None:
    arms = plan(tmp_path).arms
    assert {(str(arm.system), arm.depth) for arm in arms} == ARMS
    assert len(arms) == len({arm.name for arm in arms}) == len(ARMS)


def test_standard_adaptation_and_minipost_share_a_primary(tmp_path: Path) -> None:
    primaries = {tuple(arm.system for arm in one.arms): one for one in plan(tmp_path).primaries}
    ordinary, small, joint = (
        primaries[systems]
        for systems in (
            (System.BL_BASE, System.MINIPOST),
            (System.BL_SMALL,),
            (System.MINIJOINT, System.MINIJOINT),
        )
    )
    shapes = [one.recipe.primary_shape for one in (ordinary, small, joint)]
    assert [(shape.layers, shape.mlm_heads) for shape in shapes] == [(2, (2,)), (1, (1,)), (2, (1, 2))]


def test_every_pretraining_seed_has_arms_and_primaries_of_its_own(tmp_path: Path) -> None:
    found = plan(tmp_path, paper={"systems": ["BL_BASE", "MINIPOST"], "pretraining_seeds": [1, 7]})
    assert [one.recipe.pretraining.seed for one in found.primaries] == [1, 7]
    assert {(arm.system, arm.seed) for arm in found.arms} == {
        (system, seed) for system in (System.BL_BASE, System.MINIPOST) for seed in (1, 7)
    }
    assert {arm.primary for arm in found.arms} == {one.name for one in found.primaries}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paper": None}, r"has no \[paper\]"),
        ({"tasks": [{"name": "masked", "kind": "documents"}]}, "no task can be called 'masked'"),
    ],
)
def test_a_recipe_that_cannot_be_compared_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        plan(tmp_path, **changes)


def test_a_task_at_a_time_is_judged_after_all_masked_tokens(tmp_path: Path) -> None:
    judged = [job.made.name for job in comparison_jobs(plan(tmp_path), tmp_path / "out") if job.kind is Kind.EVALUATION]
    tasks = list(dict.fromkeys(judged))
    assert tasks == ["masked", "topic", "paws-x"]
    assert judged == sorted(judged, key=tasks.index)


def test_tasks_are_finetuned_once_a_primary_and_seed_and_by_minijoints_mini_model_too(tmp_path: Path) -> None:
    found = {one.name: [wanted.key for wanted in one.finetunings] for one in plan(tmp_path).primaries}
    of_one = ["topic/{}-layers/seed-1", "topic/{}-layers/seed-2", "paws-x/{}-layers/seed-3"]
    assert found == {
        "2-layers-heads-2-seed-1": [word.format(2) for word in of_one],
        "1-layers-heads-1-seed-1": [word.format(1) for word in of_one],
        "2-layers-heads-1-2-seed-1": [word.format(layers) for layers in (2, 1) for word in of_one],
    }


def test_systems_that_share_a_primary_start_from_the_same_embeddings_where_rows_need_text(tmp_path: Path) -> None:
    drawn = recipe(tmp_path)
    comparison = plan_comparison(changed(drawn, "adaptation", initialisation=Initialisation.ALIGNED))
    planned = [*comparison_jobs(comparison, tmp_path)]
    made = {job.made: job for job in planned}
    assert [job.name for job in planned].count("vectors-en") == 1
    starts: dict[tuple[str, str], set[Path]] = {}
    for arm in comparison.arms:
        for language in comparison.recipe.targets:
            (adapt,) = (job for job in planned if job.name == f"adapt-{language}-{arm.name}")
            start = made[adapt.inputs["initial"]]
            assert start.inputs["primary"] == adapt.inputs["primary"]
            assert made[start.inputs["source_vectors"]].kind is Kind.VECTORS
            assert planned.index(start) < planned.index(adapt)
            starts.setdefault((arm.primary, language), set()).add(start.made)
    assert {len(folders) for folders in starts.values()} == {1}
    assert len(starts) == len(comparison.primaries) * len(comparison.recipe.targets)
    assert not [
        job
        for job in comparison_jobs(plan_comparison(drawn), tmp_path)
        if "initial" in job.inputs or job.kind is Kind.VECTORS
    ]


def test_arms_that_differ_in_their_start_share_a_primary_and_nothing_that_follows_from_the_start(
    tmp_path: Path,
) -> None:
    drawn = changed(recipe(tmp_path), "adaptation", checkpoint_every_steps=6).for_system(System.MINIJOINT)
    aligned = changed(drawn, "adaptation", initialisation=Initialisation.ALIGNED)
    german = aligned.model_copy(update={"targets": ("de",)})
    comparison = replace(
        comparison_of_arms(drawn, [Arm(drawn, "overlap"), Arm(aligned, "text"), Arm(german, "pairs")]),
        measures_alignment=True,
    )
    planned = [*comparison_jobs(comparison, tmp_path)]
    made = {job.made: job for job in planned}
    assert len(made) == len(planned)
    assert len(comparison.primaries) == 1
    adaptations = [job for job in planned if job.name.startswith("adapt-")]
    assert len(adaptations) == 3 + 3 + 1
    starts = {job.name: job.inputs["initial"] for job in adaptations if "initial" in job.inputs}
    assert len({*starts.values()}) == len(starts) == 3 + 1
    assert all(made[place].kind is Kind.EMBEDDINGS for place in starts.values())
    compared = [job for job in planned if "reference" in job.inputs]
    assert len(compared) == len(adaptations)
    assert {job.made.name for job in compared} == {"alignment"}
    [reference] = {job.inputs["reference"] for job in compared}
    assert made[reference].inputs["primary"] == adaptations[0].inputs["primary"]
    assert not {job.inputs["text"] for job in compared} & {made[reference].inputs["text"]}


def test_alignment_over_other_lines_is_measured_anew(tmp_path: Path) -> None:
    lines = tmp_path / "judged.tsv"
    drawn = changed(recipe(tmp_path), "alignment", judged={"de": str(lines)}).for_system(System.MINIJOINT)
    comparison = replace(comparison_of_arms(drawn, [Arm(drawn)]), measures_alignment=True)
    judging = [job for job in comparison_jobs(comparison, tmp_path) if "reference" in job.inputs]
    marks = []
    for text in ("one\teins\n", "two\tzwei\n"):
        lines.write_text(text)
        marks.append([job.settings.get("lines") for job in judging])
    assert len(judging) == len(drawn.targets)
    for each in marks:
        assert sum(mark is not None for mark in each) == 1
    assert marks[0] != marks[1]


def test_things_are_found_by_name_and_others_refused(tmp_path: Path) -> None:
    found = plan(tmp_path)
    for arm in found.arms:
        assert found.arm(arm.name) == arm
    for one in found.primaries:
        assert found.primary(one.name) == one
        assert [one.finetuning(wanted.key) for wanted in one.finetunings] == list(one.finetunings)
    with pytest.raises(RecipeError, match=r"no arm 'bl-base-3-seed-1'; it has \['bl-base-2-seed-1', "):
        found.arm("bl-base-3-seed-1")
