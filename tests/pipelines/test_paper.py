"""The comparison's pipeline: one step, run by kfp.local with a language that fails, and again."""

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest
from kfp import components
from mlflow import MlflowClient

from lingraft.comparison.page import HTML_FILE
from lingraft.comparison.records import RECORDS_FILE, Records
from pipelines import local
from tests.comparison.compared import SMALL
from tests.comparison.project import CHECKPOINTS, recipe
from tests.pipelines.compiled import compiled
from tests.pipelines.finished import runs_of
from tests.tracking_stores import quiet


@pytest.mark.integration
@quiet
def test_it_runs_to_its_page_though_a_language_fails_and_again_from_what_is_there(tmp_path: Path) -> None:
    settings, screen = recipe(tmp_path, **SMALL | {"targets": ["de", "sw"]}), io.StringIO()
    compiled(settings, tmp_path, "paper")
    pipeline = components.load_component_from_file(str(tmp_path / "paper.yaml"))
    found = []
    with mock.patch.dict(os.environ), contextlib.redirect_stdout(screen):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        for _ in range(2):
            report = local.run(pipeline, tmp_path / "out")
            assert report
            found.append(Records.load(report / RECORDS_FILE))
        parent, stages = runs_of(MlflowClient(os.environ["MLFLOW_TRACKING_URI"]), settings.name)["paper"]
    assert found[0] == found[1]  # seconds included: nothing was trained again
    learned = [cell for cell in found[0].cells if cell.language != "en"]
    assert {(cell.system, cell.language) for cell in learned} == {
        (system, language) for system in ("BL_BASE", "MINIPOST") for language in ("de", "sw")
    }
    for cell in learned:
        assert list(cell.steps) == (CHECKPOINTS if cell.language == "de" else [])
        assert (cell.failed or "text of 'sw': ").startswith("text of 'sw': ")
    assert "text of" in (report / HTML_FILE).read_text(encoding="utf-8")
    assert parent.info.status == stages["compare"].info.status == "FINISHED"
