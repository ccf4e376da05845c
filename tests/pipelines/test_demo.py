"""What the main job prints after its pipelines."""

from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from lingraft.console import PlannedStep, TotalProgress
from lingraft.errors import PromotionError
from pipelines import build, demo
from pipelines.plan import planned_steps
from tests.pipelines.finished import TINY
from tests.tracking_stores import quiet, sqlite_store

pytestmark = quiet


def test_a_task_without_a_bundle_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite_store(tmp_path):
        assert demo._fetch_bundles(Recipe.load(TINY), tmp_path / "bundle") == {}
    said = capsys.readouterr().out
    assert said == "topic: no language has passed the gate, so there is nothing to serve; the report says why.\n"


def test_a_misspelt_language_to_drop_is_refused_before_the_first_pipeline(tmp_path: Path) -> None:
    with (
        sqlite_store(tmp_path),
        pytest.raises(PromotionError, match=r"--drop-language names 'dee', but .* names 'de', 'tr'"),
    ):
        demo.run(Recipe.load(TINY), tmp_path / "out", compare=False, drop_languages=["dee"])
    assert not [*tmp_path.glob("out/*.log")]


def test_the_first_screen_says_what_is_done_for_whom_and_where(tmp_path: Path) -> None:
    recipe = Recipe.load(Path("recipes/demo-scratch.toml"))
    pipelines = [build.source_pipeline(recipe), build.depth_search_pipeline(recipe), build.language_pipeline(recipe)]
    plan = [step for pipeline in pipelines for step in planned_steps(pipeline, {})]
    lines = demo.announcement(recipe, pipelines, plan, tmp_path)
    assert lines[0] == f"3 pipelines, {len(plan)} steps:"
    assert lines[1] == "  - English (en): pretrain 4 layers, finetune it on help-topic"
    assert lines[2] == "  - German (de): search the mini-model's depth"
    assert lines[3].startswith(
        "  - German (de), Turkish (tr), Greek (el): learn embeddings over the bottom layers (aligned"
    )
    assert str(tmp_path) in lines[6]
    assert lines[4].endswith("serve a bundle, ask it a question in each language")
    unasked = recipe.model_copy(update={"tasks": ()})
    assert demo.announcement(unasked, pipelines, plan, tmp_path)[4].endswith("export and serve a bundle")
    again = demo.announcement(recipe, pipelines[2:], planned_steps(pipelines[2], {}), tmp_path)
    assert not [line for line in again if "pretrain" in line or "search" in line]


def test_the_time_says_what_it_leaves_out_where_earlier_runs_have_done_some_of_it() -> None:
    progress = TotalProgress([PlannedStep("pretrain")] * 2)
    progress.end(progress.start("pretrain", "pretrain"))
    assert demo._time_taken(12.3, progress) == "12 s"
    progress.end(progress.start("pretrain", "pretrain"), reused=True, earlier=True)
    assert demo._time_taken(12.3, progress) == (
        "12 s for this run; 1 of 2 steps had been done before, and the time of earlier runs is not in it"
    )
