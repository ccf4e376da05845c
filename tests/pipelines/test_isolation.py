"""Languages that fail for real, each in its own way: the others are learned, registered and reported all the same."""

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
from tests.pipelines.finished import tiny
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@dataclass(frozen=True)
class Project:
    """A registered source, and languages to learn."""

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

    def trained(self) -> set[int]:
        """When each of the embeddings that there are was made."""
        return {made.stat().st_mtime_ns for made in self.folder.glob("out/results/embeddings-*/result/manifest.json")}

    def text(self, language: str) -> Path:
        """Its file."""
        return self.folder / "text" / f"{language}.jsonl"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("isolation")
    recipe = tiny(folder, targets=("de", "tr", "el", "sw"), search=None)
    recipe = recipe.with_folder(write(folder / "text", recipe.languages))
    with mock.patch.dict(os.environ):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        os.environ.pop(reuse.WHERE, None)
        local.run(build.source_pipeline(recipe), folder / "out")
        yield Project(folder, recipe, os.environ["MLFLOW_TRACKING_URI"])


@pytest.fixture(scope="module")
def said(project: Project) -> str:
    """How the run ended in which German was killed once, Turkish diverged, and Greek and Swahili failed otherwise."""
    faults = project.folder / "faults"
    faults.mkdir()
    shutil.copy(Path(__file__).with_name("faults.py"), faults / "sitecustomize.py")
    whole = project.text("sw").read_bytes()
    project.text("sw").write_bytes(b"\xff\xfe no text at all")
    with pytest.MonkeyPatch.context() as faulty:
        faulty.setenv("PYTHONPATH", str(faults), prepend=os.pathsep)
        with pytest.raises(local.PipelineFailedError) as caught:
            project.learn()
    project.text("sw").write_bytes(whole)
    return str(caught.value)


def test_each_language_fails_by_its_own_reason(said: str) -> None:
    assert "3 of 4 languages failed" in said
    assert re.search(r"tr: the loss or a gradient is not finite at step \d+ of \d+ \(learning rate [\d.e-]+\)", said)
    assert re.search(r"el: .*can't allocate memory", said)
    assert re.search(r"sw: .*sw\.jsonl", said)
    assert "de:" not in said.partition("failed, the others")[2]


@pytest.mark.usefixtures("said")
def test_only_what_may_heal_was_tried_again(project: Project) -> None:
    log = next(project.folder.glob("out/*language.log")).read_text(encoding="utf-8")
    assert "the process of step 'language.adapt' was killed: attempt 2 of 4" in log
    assert log.count("attempt ") == 1


@pytest.mark.usefixtures("said")
def test_what_was_learned_is_registered_and_the_report_tells_the_rest(project: Project) -> None:
    assert project.registered() == {"de"}
    client = MlflowClient(project.uri)
    experiment = client.get_experiment_by_name("tiny")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], max_results=1000)}
    assert runs["language"].info.status == "FAILED"
    assert runs["report"].info.status == "FINISHED"
    [page] = project.folder.glob("out/runs/**/write-report*/page")
    assert "sw.jsonl" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("said")
def test_run_again_the_others_are_learned_and_nothing_is_learned_twice(project: Project) -> None:
    trained = project.trained()
    assert len(trained) == 1
    project.learn()
    assert project.registered() == {"de", "tr", "el", "sw"}
    assert trained < project.trained()
    assert len(project.trained()) == 4
