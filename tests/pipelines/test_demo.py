"""What the main job prints after its pipelines."""

from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from lingraft.errors import PromotionError
from pipelines import demo
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
