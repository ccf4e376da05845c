"""Task examples of their own are checked with the text: there, well-formed, and with known labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from lingraft import preflight
from lingraft.config.recipe import Recipe
from tests import made_up
from tests.pipelines.made_up_tasks import tasks
from tests.preflight.listed import change, recipe_on, refusal


@pytest.fixture
def project(tmp_path: Path) -> Recipe:
    """Two languages and a task of each kind, all in order."""
    made_up.write(tmp_path / "text", ("en", "de"))
    made = [task.model_dump(mode="json") for task in tasks(tmp_path / "tasks", ("en", "de"))]
    return recipe_on(tmp_path / "text", tasks=made)


def file_of(recipe: Recipe, kind: str, split: str, language: str) -> Path:
    """The file of a task's examples."""
    source: Any = next(getattr(task, split) for task in recipe.tasks if task.kind == kind)
    return Path(source.path.replace("{language}", language))


def test_every_bad_example_of_every_task_is_listed_with_its_place(project: Recipe) -> None:
    pairs, tags = file_of(project, "pairs", "test", "de"), file_of(project, "tags", "dev", "en")
    questions = file_of(project, "questions", "train", "en")
    change(pairs, 2, "only one column")
    change(pairs, 4, "a\tb\t")
    change(tags, 1, "word\tPERSON")
    content = json.loads(questions.read_text())
    content["data"][0]["paragraphs"][3]["qas"][0]["answers"] = []
    questions.write_text(json.dumps(content))
    file_of(project, "tags", "test", "de").unlink()
    expected = [
        ("en", "reading", f"train: {questions}, article 0, paragraph 3, question '3' has no answer"),
        ("en", "names", f"dev: {tags}, line 1: 'PERSON' is no tag of a named entity"),
        ("de", "same-line", f"test: {pairs}, line 2: 1 columns"),
        ("de", "same-line", f"test: {pairs}, line 4: no label"),
        ("de", "names", f"test: {file_of(project, 'tags', 'test', 'de')} cannot be read"),
    ]
    found = refusal(project)
    assert len(found) == len(expected)
    for line, (language, task, message) in zip(found, expected, strict=True):
        assert line.startswith(f"{language}: task '{task}', {message}")


def test_a_label_that_the_training_examples_lack_is_named(project: Recipe) -> None:
    pairs = file_of(project, "pairs", "test", "de")
    change(pairs, 2, "a\tb\t7")
    [found] = refusal(project)
    assert f"{pairs}, line 2 has label '7'; task 'same-line' knows ['0', '1']" in found


def test_retrieval_that_is_to_be_finetuned_needs_training_examples(project: Recipe, tmp_path: Path) -> None:
    """A language is added to an imported task without them."""
    (tmp_path / "en-de.tsv").write_text("a cat\tKatze\na dog\tHund\n", encoding="utf-8")
    test = {"kind": "parallel", "files": f"{tmp_path}/en-{{language}}.tsv"}
    imported = recipe_on(tmp_path / "text", tasks=[{"name": "search", "kind": "retrieval", "test": test}])
    [found] = refusal(imported)
    assert found.startswith("en: task 'search', train: there are no examples, which finetuning needs. Name their file")
    preflight.require_ready(imported, languages=["de"])
