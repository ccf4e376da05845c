"""Local runs that go wrong: what the user is told, and what tracking says afterwards."""

import os
from pathlib import Path
from unittest import mock

import pytest
from mlflow import MlflowClient

from lingraft.errors import ArtifactError, LingraftError, RecipeError
from pipelines import build, local
from pipelines.__main__ import run
from tests.pipelines.finished import TINY, runs_of, tiny
from tests.tracking_stores import quiet, sqlite_store

pytestmark = quiet


def test_a_failing_step_ends_in_its_own_message_and_marks_its_runs(tmp_path: Path) -> None:
    recipe = tiny(tmp_path)
    greedy = recipe.tokenizer.model_copy(update={"vocabulary": 50_000})
    pipeline = build.source_pipeline(recipe.model_copy(update={"tokenizer": greedy}))
    with sqlite_store(tmp_path) as uri, pytest.raises(local.PipelineFailedError) as caught:
        local.run(pipeline, tmp_path / "out")

    message, _, log = str(caught.value).partition("\nThe whole log: ")
    assert "vocabulary" in message
    assert "50000" in message
    assert "lingraft.tokenizer.TooManyPiecesError" in Path(log).read_text(encoding="utf-8")
    parent, stages = runs_of(MlflowClient(uri), "tiny")["source"]
    assert parent.info.status == "FAILED"
    assert {name: stage.info.status for name, stage in stages.items()} == {
        "text-en": "FINISHED",
        "tokenizer-en": "FAILED",
    }


def test_tracking_goes_beside_the_results_unless_the_environment_says_where(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        local.set_up(tmp_path / "out")
        assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/out/mlflow.db"
        os.environ["MLFLOW_TRACKING_URI"] = "http://tracking.example:5000"
        local.set_up(tmp_path / "other")
        assert os.environ["MLFLOW_TRACKING_URI"] == "http://tracking.example:5000"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot write .*file/out"):
        local.run(build.source_pipeline(tiny(tmp_path)), tmp_path / "file" / "out")


def test_an_unknown_pipeline_is_answered_with_those_there_are() -> None:
    with pytest.raises(LingraftError, match="no pipeline 'languages'; there are source, depth-search, language"):
        run("languages", TINY)


def test_the_search_of_a_recipe_without_one_is_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    text = TINY.read_text(encoding="utf-8")
    recipe.write_text(text.replace('[search]\nlanguage = "de"\nsteps_at_depth = 8\n', ""), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"no \[search\]"):
        run("depth-search", recipe)
