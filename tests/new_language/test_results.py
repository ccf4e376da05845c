"""`lingraft add-language --results`: all that a language needs comes from what a local run left."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.cli import app
from lingraft.config.initialisation import Initialisation
from lingraft.errors import ArtifactError, RecipeError
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.training import VectorsJob
from lingraft.model.loading import load_embeddings
from lingraft.steps import data, source
from lingraft.steps.run_job import run_job
from tests.new_language.given import files_of
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet
BRIEFLY = "--steps", 4, "--batch", 8


def add(*arguments: object) -> str:
    given = ["add-language", "--lang", "tr", *map(str, arguments)]
    return CliRunner().invoke(app, given, catch_exceptions=False).stdout


@pytest.fixture
def results(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a run of the source pipeline leaves whose recipe aligns new languages with the source."""
    aligned = changed(workshop.recipe, "adaptation", initialisation=Initialisation.ALIGNED)
    folder, tasks = tmp_path / "results", tuple(workshop.tasks.values())
    folder.mkdir()
    run, evaluation, vectors = (folder / name for name in ("run", "evaluation", "vectors"))
    common: dict[str, Any] = {"recipe": aligned, "blocks": workshop.blocks["en"]}
    with sqlite_store(folder):
        data.open_run(aligned.to_json(), "source", run)
        run_job(VectorsJob(tokenizer=workshop.tokenizers["en"], out=vectors, **common), run)
        judging = SourceEvaluationJob(
            primary=workshop.primary, tasks=tasks, text=workshop.texts["en"], out=evaluation, **common
        )
        source.evaluate_source(judging, run)
        source.register_source(aligned.to_json(), run, workshop.primary, tasks, evaluation, [vectors])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///not-there.db")  # the folder goes before it
    return folder


def test_one_option_brings_all_that_a_language_with_aligned_rows_needs(
    text: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said, out = add("--results", results, "--text", text, *BRIEFLY), Path("tr")
    assert "topic: accuracy, " in said
    assert "counterparts in the source, of" in said
    assert f"MLFLOW_TRACKING_URI=sqlite:///{results / 'mlflow.db'} lingraft registry add {out}" in said
    initial = load_embeddings(out / "initial").manifest
    assert initial.details["alignment"]["resource"] == "text alone"
    assert Artifact.load(out / "source" / "primary", Kind.PRIMARY).fingerprint == initial.aligned_with
    before = files_of(out)
    (results / "mlflow.db").rename(results / "mlflow.db.away")  # what was brought once is not brought again
    (results / "mlflow.db").touch()
    again, made = (
        re.sub("^stages: .*$", "", each, flags=re.MULTILINE)
        for each in (add("--results", results, "--text", text, *BRIEFLY), said)
    )
    assert again == made
    assert files_of(out) == before


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (["--results", "."], ArtifactError, r"has no results: .*mlflow\.db is not there\. Give the folder that was"),
        ([], RecipeError, r"needs one model .* none was given\. Give --model, .* or --results, the folder that `make"),
        (["--results", ".", "--primary", "p"], RecipeError, r"one model .* \['--results', '--primary'\] was given"),
        (
            ["--results", ".", "--mini", "m", "--vectors", "v"],
            RecipeError,
            "--results brings mini, vectors",
        ),
    ],
)
def test_results_that_are_not_there_or_not_needed_are_refused(
    given: list[str], error: type[Exception], words: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(error, match=words):
        add(*given, "--text", text)
