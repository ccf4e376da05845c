"""Languages that fail for real, one among three: the others are learned, registered and reported all the same."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from mlflow import MlflowClient

from lingraft import reuse
from lingraft.config import Recipe
from pipelines import build, local
from tests.made_up import write
from tests.pipelines.finished import runs_of, tiny
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@dataclass(frozen=True)
class Project:
    """A registered source, and three languages to learn."""

    folder: Path
    recipe: Recipe
    uri: str

    def learn(self) -> None:
        """Run the language pipeline."""
        local.run(build.language_pipeline(self.recipe), self.folder / "out")

    def registered(self) -> set[str]:
        """Languages whose embeddings are in the registry."""
        names = {model.name for model in MlflowClient(self.uri).search_registered_models()}
        return {name.rpartition("-")[2] for name in names if "-embeddings-" in name}

    @property
    def text(self) -> Path:
        """Of Turkish."""
        return self.folder / "text" / "tr.jsonl"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    recipe = tiny(tmp_path, targets=("de", "tr", "el"), search=None)
    recipe = recipe.with_folder(write(tmp_path / "text", recipe.languages))
    with mock.patch.dict(os.environ):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        os.environ.pop(reuse.WHERE, None)
        local.run(build.source_pipeline(recipe), tmp_path / "out")
        yield Project(tmp_path, recipe, os.environ["MLFLOW_TRACKING_URI"])


def test_a_language_with_bad_text_fails_alone_and_is_learned_when_it_is_mended(project: Project) -> None:
    whole = project.text.read_bytes()
    project.text.write_bytes(b"\xff\xfe no text at all")
    with pytest.raises(local.PipelineFailedError, match=r"1 of 3 languages failed.*tr: .*tr\.jsonl"):
        project.learn()
    assert project.registered() == {"de", "el"}
    parent, stages = runs_of(MlflowClient(project.uri), "tiny")["language"]
    assert parent.info.status == "FAILED"
    assert "report" in stages
    [page] = project.folder.glob("out/runs/**/write-report*/page")
    assert "tr.jsonl" in page.read_text(encoding="utf-8")
    trained = {
        place.stat().st_mtime_ns for place in project.folder.glob("out/results/embeddings-*/result/manifest.json")
    }
    assert len(trained) == 2
    project.text.write_bytes(whole)
    project.learn()
    assert project.registered() == {"de", "tr", "el"}
    again = {place.stat().st_mtime_ns for place in project.folder.glob("out/results/embeddings-*/result/manifest.json")}
    assert trained < again
    assert len(again) == 3


def test_what_fails_in_training_fails_alone(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as faulty:
        folder = project.folder / "faults"
        folder.mkdir()
        shutil.copy(Path(__file__).with_name("faults.py"), folder / "sitecustomize.py")
        faulty.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        with pytest.raises(local.PipelineFailedError) as caught:
            project.learn()
    said = str(caught.value)
    assert "2 of 3 languages failed" in said
    assert re.search(r"tr: the loss or a gradient is not finite at step \d+ of \d+ \(learning rate [\d.e-]+\)", said)
    assert re.search(r"el: .*can't allocate memory", said)
    assert "de:" not in said.partition("failed, the others")[2]
    assert project.registered() == {"de"}
    log = next(project.folder.glob("out/*language.log")).read_text(encoding="utf-8")
    assert "the process of step 'language.adapt' was killed: attempt 2 of 4" in log
    assert log.count("attempt ") == 1  # neither of the others would end better
    project.learn()
    assert project.registered() == {"de", "tr", "el"}
