"""Loading of a task's examples, from files and datasets of its kind; without PyTorch, which takes seconds to import."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

from lingraft.artifacts.artifact import Artifact
from lingraft.config.tasks import Task, TaskDataset
from lingraft.data.huggingface import load_rows
from lingraft.data.splits import SplitName
from lingraft.data.text import load_split
from lingraft.errors import LingraftError, TextError, raise_errors
from lingraft.tasks.labelled_texts import (
    LABEL_COLUMNS,
    Example,
    documents_as_examples,
    examples_of_rows,
    examples_or_errors,
)
from lingraft.tasks.query_passages import QueryPassage, query_passages_of_rows, query_passages_or_errors
from lingraft.tasks.rows import Row, class_names, in_language
from lingraft.tasks.squad import Question, questions_of_rows, questions_or_errors
from lingraft.tasks.squad_metric import Evaluation
from lingraft.tasks.tagged_sentences import (
    ENTITY_COLUMNS,
    WORD_TAG_COLUMNS,
    Sentence,
    sentences_of_rows,
    sentences_or_errors,
    without_prefix,
)

AnyExample = Example | Sentence | Question | QueryPassage


def load_examples(task: Task, split: SplitName, language: str, text: Artifact | None) -> list[Any]:
    """Load the examples of one split of a task in one language.

    Args:
        task: names the file or the dataset.
        split: split of the task.
        language: replaces '{language}' in the path or the dataset; picks the rows of files that hold several.
        text: text of the language; the examples of a task of kind 'documents', and not read for any other.

    Raises:
        MissingExtraError: they come from Hugging Face, and the package `datasets` is not installed.
        TextError: they cannot be read, are of another layout or without labels, or there are none.
    """
    if task.reads_text:
        if text is None or text.manifest.language != language:
            given = "none" if text is None else f"text in {text.manifest.language!r}"
            raise TextError(
                f"task {task.name!r} takes its examples from the text in {language!r}, and was given {given}. "
                f"Give the folder that `lingraft text --language {language}` wrote."
            )
        return documents_as_examples(load_split(text, split))
    if task.kind == "questions":
        Evaluation(task.evaluation).require(language)
    examples: list[Any] = list(raise_errors(read_examples(task, split, language)))
    source = getattr(task, split)
    if task.kind == "tags" and not isinstance(source, TaskDataset):
        return without_prefix(examples, language, _file_of(source.path, language))
    return examples


def read_examples(task: Task, split: SplitName, language: str) -> Iterator[AnyExample | LingraftError]:
    """Yield the examples of a file or a dataset of a task, and an error in place of each that is none."""
    source = getattr(task, split)
    if source is None:
        yield TextError(f"task {task.name!r} has no {split} examples. Name their file or dataset: [[tasks]] {split}.")
        return
    try:
        if isinstance(source, TaskDataset):
            yield from _read_dataset(task, source, language)
        else:
            yield from _read_file(task, _file_of(source.path, language), language)
    except LingraftError as error:
        yield error


def _file_of(path: str, language: str) -> Path:
    return Path(path.replace("{language}", language))


def _read_file(task: Task, path: Path, language: str) -> Iterator[AnyExample | LingraftError]:
    match task.kind:
        case "documents" | "texts" | "pairs":
            return examples_or_errors(path, language, task.kind == "pairs")
        case "questions":
            return questions_or_errors(path)
        case "tags":
            return sentences_or_errors(path, named_entities=not task.judges_words)
        case "retrieval":
            return query_passages_or_errors(path, language)
        case unknown:
            assert_never(unknown)


def _read_dataset(task: Task, source: TaskDataset, language: str) -> Iterator[AnyExample]:
    dataset = load_rows(source, language, f"task {task.name!r}")
    origin = f"dataset {source.dataset.replace('{language}', language)!r} in {language!r}"
    rows = (row.cells for row in raise_errors(in_language((Row(origin, cells) for cells in dataset), language, origin)))
    match task.kind:
        case "documents" | "texts" | "pairs":
            return examples_of_rows(rows, origin, class_names(dataset.features, LABEL_COLUMNS), task.kind == "pairs")
        case "questions":
            return questions_of_rows(rows, origin)
        case "tags":
            names = class_names(dataset.features, WORD_TAG_COLUMNS if task.judges_words else ENTITY_COLUMNS)
            return sentences_of_rows(rows, origin, names, named_entities=not task.judges_words)
        case "retrieval":
            return query_passages_of_rows(rows, origin)
        case unknown:
            assert_never(unknown)
