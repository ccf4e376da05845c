"""Tasks in a recipe: several of several kinds, each with its data."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.recipe import Recipe
from lingraft.errors import RecipeError

TINY = tomllib.loads((Path(__file__).parents[1] / "tiny.toml").read_text())
FILES = {split: {"kind": "file", "path": f"{split}-{{language}}.tsv"} for split in ("train", "dev", "test")}
DATASET = {"kind": "huggingface", "dataset": "facebook/xnli", "configuration": "{language}", "split": "test"}
PARQUET = {"revision": "refs/convert/parquet"}


def with_tasks(*tasks: dict[str, Any]) -> Recipe:
    return Recipe.parse(TINY | {"tasks": list(tasks)})


def task(name: str = "xnli", kind: str = "pairs", **changes: Any) -> dict[str, Any]:
    """A task with data of its own; None leaves a key out."""
    made = {"name": name, "kind": kind, **FILES, **changes}
    return {key: value for key, value in made.items() if value is not None}


def refusal(*tasks: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        with_tasks(*tasks)
    return str(caught.value)


def test_a_project_has_tasks_of_several_kinds() -> None:
    topic, mixed = {"name": "topic", "kind": "documents"}, task("qa", "questions", test=DATASET | PARQUET)
    recipe = with_tasks(topic, task(), mixed, task("ner", "tags"), task("mood", "texts"))
    assert [one.name for one in recipe.tasks] == ["topic", "xnli", "qa", "ner", "mood"]
    assert Recipe.parse(recipe.to_json()) == recipe
    assert recipe.task("qa").test is not None
    assert recipe.task("qa").test.model_dump() == DATASET | PARQUET


def test_a_task_is_found_by_name_which_a_lone_one_needs_not() -> None:
    lone, several = with_tasks(task()), with_tasks(task(), task("qa", "questions"))
    assert lone.task() is lone.task("xnli") is lone.tasks[0]
    assert several.task("qa") is several.tasks[1]
    with pytest.raises(RecipeError, match=r"a task 'topic': its \[\[tasks\]\] are \['qa', 'xnli'\]"):
        several.task("topic")
    with pytest.raises(RecipeError, match="one task to name"):
        several.task()


def test_a_batch_of_retrieval_is_not_divided() -> None:
    several = TINY | {
        "cluster": {
            "stages": {"finetuning": {"accelerator": "nvidia.com/gpu", "accelerator_count": 2, "shared_memory": "1Gi"}}
        }
    }
    assert Recipe.parse(several | {"tasks": [task()]})
    with pytest.raises(RecipeError, match=r"'search' of kind 'retrieval' is finetuned by one process.* has 2"):
        Recipe.parse(several | {"tasks": [task("search", "retrieval")]})


def test_two_tasks_of_one_name_are_refused() -> None:
    assert "tasks ['xnli', 'xnli'] must have different names" in refusal(task(), task(kind="texts"))


def test_only_a_recipe_that_serves_its_primary_says_so_and_has_no_task_of_that_name() -> None:
    raw = TINY | {"serve_primary": True}
    assert Recipe.parse(Recipe.parse(raw).to_json()).serve_primary
    with pytest.raises(RecipeError, match="a task cannot be named 'primary' where serve_primary is true"):
        Recipe.parse(raw | {"tasks": [task("primary")]})


@pytest.mark.parametrize("kind", ["texts", "pairs", "questions", "tags"])
@pytest.mark.parametrize(("absent", "left"), [("test", ["train", "dev"]), ("train", ["dev", "test"])])
def test_a_task_without_some_of_its_data_is_refused(kind: str, absent: str, left: list[str]) -> None:
    assert f"kind '{kind}' needs train, dev and test, but has only {left}" in refusal(task(kind=kind, **{absent: None}))


def test_documents_come_with_the_text_and_from_nowhere_else() -> None:
    message = refusal({"name": "topic", "kind": "documents", "test": FILES["test"]})
    assert "['test'] cannot be set with kind 'documents', whose examples are the recipe's [text]" in message


@pytest.mark.parametrize("kind", ["texts", "pairs", "tags"])
@pytest.mark.parametrize("labels", [["yes"], ["yes", "no", "yes"]])
def test_labels_that_tell_nothing_apart_are_refused(kind: str, labels: list[str]) -> None:
    message = refusal(task(kind=kind, labels=labels))
    assert f"tasks.0: labels {labels} must be two or more, all different; leave them out to take the" in message


def test_labels_may_have_names_for_people() -> None:
    named = with_tasks(task(labels=["yes", "no"], label_names={"yes": "It follows"})).task()
    assert (named.named("yes"), named.named("no")) == ("It follows [yes]", "no")
    message = refusal(task(labels=["yes", "no"], label_names={"maybe": "Perhaps"}))
    assert "label_names has ['maybe'], but the labels are ['yes', 'no']" in message


def test_questions_have_no_labels() -> None:
    message = refusal(task(kind="questions", labels=["yes", "no"]))
    assert "tasks.0: labels ['yes', 'no'] cannot be set with kind 'questions'" in message


@pytest.mark.parametrize("kind", ["texts", "pairs", "tags"])
def test_mlqas_evaluation_is_for_questions_only(kind: str) -> None:
    message = refusal(task(kind=kind, evaluation="mlqa"))
    assert f"tasks.0: evaluation 'mlqa' is for kind 'questions' only, and kind is '{kind}'. Leave it out." in message
    assert with_tasks(task(kind="questions", evaluation="mlqa")).task().evaluation == "mlqa"


def test_every_word_is_judged_of_tags_only() -> None:
    message = refusal(task(kind="questions", evaluation="words"))
    assert "tasks.0: evaluation 'words' is for kind 'tags' only, and kind is 'questions'. Leave it out." in message
    assert with_tasks(task(kind="tags", evaluation="words")).task().evaluation == "words"


def test_a_language_that_the_project_lacks_is_ignored_unless_it_is_the_only_one() -> None:
    asked = {language: {"text": "a", "text_pair": "b"} for language in ("de", "fr")}
    made = with_tasks(task(languages=["de", "fr"], examples=asked)).task()
    assert [*made.examples] == ["de"]
    assert [made.covers(language) for language in ("en", "de", "tr")] == [False, True, False]
    assert all(with_tasks(task()).task().covers(language) for language in ("en", "de", "tr"))
    assert "task 'xnli' has test examples in ['fr'] only" in refusal(task(languages=["fr"]))


@pytest.mark.parametrize(
    ("kind", "example", "asked"),
    [
        ("texts", "ba de", {"text": "ba de"}),
        ("tags", {"text": "ba de"}, {"text": "ba de"}),
        ("pairs", {"text": "ba", "text_pair": "de"}, {"text": "ba", "text_pair": "de"}),
        ("questions", {"context": "ba de", "question": "ba?"}, {"question": "ba?", "context": "ba de"}),
    ],
)
def test_an_example_has_the_texts_that_its_kind_is_asked_about(kind: str, example: Any, asked: dict[str, str]) -> None:
    recipe = with_tasks(task(kind=kind, examples={"de": example}))
    assert recipe.task().asked("de") == asked
    assert Recipe.parse(recipe.to_json()) == recipe


@pytest.mark.parametrize(
    ("kind", "example", "has", "wants"),
    [
        ("pairs", "ba de", ["text"], ["text", "text_pair"]),
        ("questions", {"text": "ba", "text_pair": "de"}, ["text", "text_pair"], ["question", "context"]),
        ("tags", {"text": "ba", "mood": "de"}, ["mood", "text"], ["text"]),
    ],
)
def test_an_example_of_other_texts_is_refused(kind: str, example: Any, has: list[str], wants: list[str]) -> None:
    message = refusal(task(kind=kind, examples={"de": example}))
    assert f"tasks.0: examples.de has {has}, but kind '{kind}' is asked about {wants}." in message


def test_finetuning_is_the_papers_where_a_task_says_nothing() -> None:
    settings = with_tasks(task()).task().finetuning
    found = (settings.epochs, settings.learning_rate, settings.seeds)
    assert found == (3, 1e-5, (1, 2, 3, 4, 5))


def test_the_pairs_that_a_language_learns_from_are_no_test() -> None:
    """Pairs that only measure alignment may be tested on; so may those of a language that is not judged."""
    lines = task("search", "retrieval", test={"kind": "parallel", "files": "en-{language}.tsv"})
    learns = {"pairs": {}} | TINY["adaptation"]

    def parse(wanted: dict[str, Any], adaptation: dict[str, Any], file: str) -> Recipe:
        alignment = {"parallel": {"de": file, "tr": "other.tsv"}}
        judged = {"gate": {"metric": "alignment"}, "search": None}
        return Recipe.parse(TINY | {"tasks": [wanted], "alignment": alignment, "adaptation": adaptation} | judged)

    message = r"task 'search' has test\.files 'en-de\.tsv' in 'de', from which the language learns"
    for adaptation in (learns, TINY["adaptation"] | {"initialisation": "aligned"}):
        with pytest.raises(RecipeError, match=message):
            parse(lines, adaptation, "en-de.tsv")
    parse(lines, learns, "more-de.tsv")
    parse(lines, TINY["adaptation"], "en-de.tsv")
    parse(lines | {"languages": ["tr"]}, learns, "en-de.tsv")
