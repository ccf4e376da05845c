"""The plan of a comparison: everything once, and shared where systems can share."""

from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.manifest import Kind
from lingraft.comparison.jobs import comparison_jobs
from lingraft.comparison.plan import Comparison, plan_comparison
from lingraft.config.systems import System
from lingraft.errors import RecipeError
from tests.comparison.project import ARMS, RECIPE, recipe

ALIGNED = {"adaptation": RECIPE["adaptation"] | {"initialisation": "aligned"}}


def plan(folder: Path, **changes: Any) -> Comparison:
    return plan_comparison(recipe(folder, **changes))


def test_systems_share_a_primary_where_they_can_and_every_depth_and_seed_is_an_arm(tmp_path: Path) -> None:
    found = plan(tmp_path, paper={"depths": [2], "pretraining_seeds": [1, 7]})
    assert {(str(arm.system), arm.depth, arm.seed) for arm in found.arms} == {
        (*arm, seed) for arm in ARMS for seed in (1, 7)
    }
    assert len({arm.name for arm in found.arms}) == len(found.arms)
    shapes = {
        tuple(arm.system for arm in one.arms): one.recipe.primary_shape for one in found.primaries if one.seed == 7
    }
    assert {systems: (shape.layers, shape.mlm_heads) for systems, shape in shapes.items()} == {
        (System.BL_BASE, System.MINIPOST): (2, (2,)),
        (System.BL_SMALL,): (1, (1,)),
        (System.MINIJOINT, System.MINIJOINT): (2, (1, 2)),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paper": None}, r"has no \[paper\]"),
        ({"tasks": [{"name": "masked", "kind": "documents"}]}, "has a task 'masked' of its own"),
        (
            {"paper": {"starts": {"far": {"adaptation": {"initialisation": "far"}}}}},
            "from paper.starts.far is not usable:\n  adaptation.initialisation",
        ),
    ],
)
def test_a_recipe_that_cannot_be_compared_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        plan(tmp_path, **changes)


def test_a_task_at_a_time_is_evaluated_after_all_masked_tokens(tmp_path: Path) -> None:
    jobs = comparison_jobs(plan(tmp_path), tmp_path / "out")
    evaluated = [job.made.name for job in jobs if job.kind is Kind.EVALUATION]
    assert list(dict.fromkeys(evaluated)) == ["masked", "topic", "paws-x"]
    assert evaluated == sorted(evaluated, key=["masked", "topic", "paws-x"].index)


def test_tasks_are_finetuned_once_a_primary_and_seed_and_by_minijoints_mini_model_too(tmp_path: Path) -> None:
    jobs = comparison_jobs(plan(tmp_path), tmp_path)
    found = sorted(str(job.made.relative_to(tmp_path / "task")) for job in jobs if job.kind is Kind.TASK)
    of_one = ("topic/{}-layers/seed-1", "topic/{}-layers/seed-2", "paws-x/{}-layers/seed-3")
    layers = {"2-layers-heads-2-seed-1": (2,), "1-layers-heads-1-seed-1": (1,), "2-layers-heads-1-2-seed-1": (2, 1)}
    wanted = [f"{name}/{word.format(each)}" for name, depths in layers.items() for each in depths for word in of_one]
    assert found == sorted(wanted)


def test_starts_share_primaries_and_nothing_that_follows_from_the_start(tmp_path: Path) -> None:
    starts = {
        "overlap": {"adaptation": {"initialisation": "overlap", "steps": 8}},
        "text": {},
        "borrowed": {"tokenizer": {"borrow": True}},
    }
    found = plan(tmp_path, **ALIGNED, targets=["de"], paper={"systems": ["BL_BASE", "MINIPOST"], "starts": starts})
    planned = [*comparison_jobs(found, tmp_path)]
    made = {job.made: job for job in planned}
    assert len(made) == len(planned)
    assert len(found.primaries) == 1
    assert [job.name for job in planned].count("build-mini-minipost-1-seed-1") == 1
    adaptations = {job.name.removeprefix("adapt-de-"): job for job in planned if job.name.startswith("adapt-")}
    steps = {name: job.recipe.adaptation.steps for name, job in adaptations.items()}
    assert steps == {
        f"{system}-seed-1-{start}": 8 if start == "overlap" else 4
        for system in ("bl-base-2", "minipost-1")
        for start in starts
    }
    initial = {name: job.inputs.get("initial") for name, job in adaptations.items()}
    assert {name for name, place in initial.items() if place is None} == {name for name in initial if "overlap" in name}
    assert initial["bl-base-2-seed-1-text"] == initial["minipost-1-seed-1-text"] != initial["bl-base-2-seed-1-borrowed"]
    begun = made[initial["bl-base-2-seed-1-borrowed"]]
    assert planned.index(begun) < planned.index(adaptations["bl-base-2-seed-1-borrowed"])
    assert made[begun.inputs["source_vectors"]].kind is Kind.VECTORS
    borrowed = made[begun.inputs["tokenizer"]]
    assert borrowed.inputs["source"] == tmp_path / "tokenizer/en"
    assert borrowed.inputs["text"] == tmp_path / "text/de"
    assert made[tmp_path / "tokenizer/de"].inputs.keys() == {"text"}


def test_translations_are_found_where_lines_are_named_and_anew_if_these_change(tmp_path: Path) -> None:
    lines = tmp_path / "judged.tsv"
    found = plan(tmp_path, alignment={"judged": {"de": str(lines)}})
    jobs = [job for job in comparison_jobs(found, tmp_path) if job.made.name == "translations"]
    assert {job.made.parent.name for job in jobs} == {"de"}
    assert len(jobs) == len(ARMS)
    keys = []
    for text in ("one\teins\n", "two\tzwei\n"):
        lines.write_text(text)
        keys.append(jobs[0].settings)
    assert keys[0] != keys[1]
