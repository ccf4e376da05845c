"""From a recipe's task to its kind and its examples."""

from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact
from lingraft.config.tasks import Task, TaskDataset
from lingraft.data.huggingface import load_rows
from lingraft.data.text import SplitName, load_split
from lingraft.errors import TextError
from lingraft.tasks.classification import Classification
from lingraft.tasks.kinds import TaskKind
from lingraft.tasks.labelled_texts import documents_as_examples
from lingraft.tasks.question_answering import QuestionAnswering
from lingraft.tasks.rows import Row, class_names, in_language
from lingraft.tasks.squad_metric import Evaluation
from lingraft.tasks.tagging import Tagging


def kind_of(task: Task) -> TaskKind:
    """How a task's examples are read, batched, learned and judged."""
    if task.kind == "questions":
        return QuestionAnswering(Evaluation(task.evaluation))
    if task.kind == "tags":
        return Tagging()
    return Classification(pairs=task.kind == "pairs")


def load_examples(task: Task, split: SplitName, language: str, text: Artifact | None) -> list[Any]:
    """Examples of one split of a task in one language.

    Args:
        task: says where they come from.
        split: which of them.
        language: replaces '{language}' in the path or the dataset; picks the rows of files that hold several.
        text: text of the language; the examples of a task of kind 'documents', and not read for any other.

    Raises:
        MissingExtraError: they come from Hugging Face, and the package `datasets` is not installed.
        TextError: they cannot be read, are of another layout or without labels, or there are none.
    """
    if task.kind == "documents":
        return _documents(task, split, language, text)
    source = getattr(task, split)
    if isinstance(source, TaskDataset):
        return _dataset(task, source, language)
    return kind_of(task).read(Path(source.path.replace("{language}", language)), language)


def _documents(task: Task, split: SplitName, language: str, text: Artifact | None) -> list[Any]:
    if text is None or text.manifest.language != language:
        given = "none" if text is None else f"text in {text.manifest.language!r}"
        raise TextError(
            f"task {task.name!r} takes its examples from the text in {language!r}, and was given {given}. "
            f"Give the folder that `lingraft text --language {language}` wrote."
        )
    return documents_as_examples(load_split(text, split))


def _dataset(task: Task, source: TaskDataset, language: str) -> list[Any]:
    dataset = load_rows(source, language, f"task {task.name!r}")
    origin = f"dataset {source.dataset.replace('{language}', language)!r} in {language!r}"
    rows = (row.cells for row in in_language((Row(origin, cells) for cells in dataset), language, origin))
    return kind_of(task).from_rows(rows, origin, class_names(dataset.features))
