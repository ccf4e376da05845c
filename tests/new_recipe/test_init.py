"""`lingraft init` fills in a template: a recipe that loads, that passes the check, and by which the pipelines run."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft import preflight
from lingraft.cli import main
from lingraft.config.recipe import Recipe
from lingraft.source_model import load_recipe
from tests import made_up
from tests.huggingface.embedding_models import make_embedding_model

DOCUMENTS = 150


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Labelled text in three languages, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return made_up.write(tmp_path / "My Text", ("en", "de", "tr"), DOCUMENTS)


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*arguments: object) -> int:
        """The exit code of the command, as a user gives it."""
        monkeypatch.setattr(sys, "argv", ["lingraft", "init", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


def test_the_recipe_loads_and_passes_the_check(
    text: Path, init: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (text / "README.md").write_text("about")
    (text / "faq.txt").write_text("how and why")
    assert init(text) == 0
    recipe = Recipe.load(Path("recipe.toml"))
    assert (recipe.name, recipe.source.language, recipe.targets) == ("my-text", "en", ("de", "tr"))
    [task] = recipe.tasks
    assert (task.kind, task.languages, set(task.examples)) == ("documents", ("en", "de", "tr"), {"en", "de", "tr"})
    assert not recipe.serve_primary
    preflight.require_ready(recipe)
    assert capsys.readouterr().out.endswith("  python -m pipelines demo --recipe recipe.toml --out results\n")


def test_a_model_that_is_searched_with_learns_the_languages(
    text: Path, init: Callable[..., int], tmp_path: Path
) -> None:
    make_embedding_model(tmp_path / "made")
    assert init(text, "--template", "search", "--model", tmp_path / "made" / "model", "--name", "find") == 0
    recipe = load_recipe(Path("recipe.toml"))
    assert (recipe.name, recipe.targets, recipe.alignment.mined) == ("find", ("de", "tr"), True)
    assert [(task.name, task.kind) for task in recipe.tasks] == [("retrieval", "retrieval")]  # as importing names it
    preflight.require_ready(recipe)


@pytest.mark.parametrize("template", ["scratch", "search"])
def test_every_line_is_explained(text: Path, init: Callable[..., int], template: str) -> None:
    init(text, "--template", template)
    settings = [line for line in Path("recipe.toml").read_text().splitlines() if " = " in line]
    examples = [line for line in settings if line.split(" = ")[0] in ("en", "de", "tr")]
    assert len(settings) > 20
    assert [line for line in settings if line not in examples and "  # " not in line] == []


def test_a_recipe_that_is_there_is_only_replaced_by_force(
    text: Path, init: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path("mine.toml")
    out.write_text("mine")
    assert init(text, "--out", out) == 1
    assert f"{out} exists already. Choose another --out, or replace it with --force." in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert init(text, "--out", out, "--force") == 0
    assert Recipe.load(out).name == "my-text"


def unlabel(text: Path, language: str) -> None:
    """Take a language's labels away."""
    rows = [{"text": row["text"]} for row in made_up.documents(language, DOCUMENTS)]
    (text / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_without_labels_of_the_source_there_is_no_task(
    text: Path, init: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    unlabel(text, "en")
    init(text)
    recipe = Recipe.load(Path("recipe.toml"))
    assert (recipe.tasks, recipe.serve_primary) == ((), True)
    assert "The recipe has no task to learn: not every document in 'en' has a label." in capsys.readouterr().err
    preflight.require_ready(recipe)


def test_a_task_is_judged_where_there_are_labels(text: Path, init: Callable[..., int]) -> None:
    unlabel(text, "tr")
    init(text)
    [task] = Recipe.load(Path("recipe.toml")).tasks
    assert (task.languages, set(task.examples)) == (("en", "de"), {"en", "de", "tr"})


def test_languages_are_the_names_of_files_and_folders(text: Path, init: Callable[..., int]) -> None:
    (text / "de.jsonl").rename(text / "pt-BR.jsonl")
    (text / "sw").mkdir()
    (text / "sw" / "a.txt").write_text("Karibu.\n")
    (text / "fil.txt.gz").write_bytes(b"")
    assert init(text, "--source", "tr", "--template", "search") == 0
    assert 'targets = ["en", "fil", "pt-BR", "sw"]' in Path("recipe.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--source", "fr"],
            "has text in ['de', 'en', 'tr'] by the names of its files and folders; a project needs 'fr'",
        ),
        (["--template", "small"], "there is no template 'small'. Choose one of ['scratch', 'search']."),
    ],
)
def test_what_cannot_be_filled_in_is_refused(
    text: Path, init: Callable[..., int], arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(text, *arguments) == 1
    assert words in capsys.readouterr().err
    assert init(text / "en.jsonl") == 1
    assert "en.jsonl is no folder" in capsys.readouterr().err
