"""Every command and pipeline that computes for long checks its inputs first, and begins nothing if one is wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lingraft.cli import main
from lingraft.comparison import runner
from lingraft.config.recipe import Recipe
from lingraft.jobs.data import TextJob
from lingraft.preflight import NotReadyError
from lingraft.steps import data
from pipelines.__main__ import demo, run
from tests import made_up
from tests.comparison import project

TINY = Path(__file__).parents[1] / "tiny.toml"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Text of the tiny recipe; a line in German is broken, and Turkish is missing."""
    made_up.write(tmp_path / "text", ("en", "de"))
    with (tmp_path / "text" / "de.jsonl").open("a") as stream:
        stream.write("{\n")
    return tmp_path / "text"


@pytest.mark.parametrize("pipeline", ["all of them", "depth-search"])
def test_a_local_run_lists_everything_that_is_wrong_and_begins_nothing(
    pipeline: str, text: Path, tmp_path: Path
) -> None:
    searched = pipeline == "depth-search"  # which is for German alone
    given: dict[str, Any] = {"recipe": TINY, "out": tmp_path / "out", "text": text}
    with pytest.raises(NotReadyError) as caught:
        demo(**given) if pipeline == "all of them" else run(pipeline, **given)
    first, *found = str(caught.value).splitlines()
    assert first.endswith("found before anything was computed:")
    assert f"de: {text / 'de.jsonl'}, line 301: not JSON" in found[0]
    assert ["tr: " in line for line in found[1:]] == ([] if searched else [True])
    assert not (tmp_path / "out").exists()


def test_the_papers_comparison_begins_only_if_all_is_there_or_holes_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project.recipe(tmp_path)
    begun: list[Recipe] = []

    def stop(recipe: Recipe, *_: Any) -> None:
        begun.append(recipe)
        raise NotReadyError("far enough")

    monkeypatch.setattr(runner, "run", stop)
    monkeypatch.setattr(Recipe, "load", lambda *_: settings)
    command = ["lingraft", "compare", "recipe.toml", "--out", str(tmp_path / "out")]
    for arguments, words in ((command, "1. sw: "), ([*command, "--allow-missing"], "error: far enough")):
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit):
            main()
        assert words in capsys.readouterr().err
    assert begun == [settings]


@pytest.mark.parametrize(("pipeline", "refused"), [("source", True), ("language", False), ("paper", False)])
def test_a_pipelines_first_step_refuses_what_cannot_go_on(
    pipeline: str, refused: bool, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.write(text, ("tr",))
    recipe = Recipe.load(TINY).with_folder(text)
    languages = [] if pipeline == "source" else ["de", "tr"]
    try:
        data.check_inputs(recipe.to_json(), "tiny.toml", pipeline, languages, [], tmp_path / "recipe.json")
    except NotReadyError as error:
        told = str(error)
    else:
        told = capsys.readouterr().err
        assert "The other languages go on." in told
    assert f"1. de: {text / 'de.jsonl'}, line 301: not JSON" in told
    assert ("The other languages go on." not in told) == refused


def test_a_comparison_needs_its_source_and_a_language_run_does_not(tmp_path: Path) -> None:
    recipe = Recipe.load(TINY).with_folder(made_up.write(tmp_path / "text", ("de", "tr")))
    given = recipe.to_json(), "tiny.toml"
    facts = data.check_inputs(*given, "language", ["de", "tr"], [], tmp_path / "recipe.json")
    assert facts == {"file": "tiny.toml", "digest": recipe.digest()}
    written = (tmp_path / "recipe.json").read_text(encoding="utf-8")
    assert Recipe.parse(written) == recipe
    assert len(written.splitlines()) > 100
    with pytest.raises(NotReadyError, match=r"1\. en: "):
        data.check_inputs(*given, "paper", ["de", "tr"], [], tmp_path / "recipe.json")


def test_a_language_with_a_problem_fails_at_its_text_and_not_after_its_training(text: Path, tmp_path: Path) -> None:
    rows = [row | {"label": "moon"} for row in made_up.documents("de", 300)]
    (text / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = Recipe.load(TINY).with_folder(text)
    with pytest.raises(NotReadyError, match="label 'moon'"):
        data.prepare_text(TextJob(recipe=recipe, language="de", out=tmp_path / "out"), tmp_path / "run")
