"""Task examples in files and datasets of their own: there, well-formed, and with labels that the task knows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task, TaskDataset
from lingraft.data.huggingface import load_rows
from lingraft.data.splits import SplitName
from lingraft.errors import LingraftError
from lingraft.tasks import squad
from lingraft.tasks.labelled_texts import Example, examples_of, examples_or_errors
from lingraft.tasks.rows import Row, class_names, in_language
from lingraft.tasks.squad import Question
from lingraft.tasks.tagged_sentences import Sentence, sentences_of, sentences_or_errors

MAX_EXAMPLES = 500_000
"""Examples of a file or dataset that are read, at most."""
AnyExample = Example | Sentence | Question


@dataclass
class SplitScan:
    """Contents of one split of a task in one language."""

    errors: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Where each label stands first."""
    count: int = 0

    @property
    def whole(self) -> bool:
        """Whether everything was read and could be."""
        return not self.errors and self.count < MAX_EXAMPLES


def example_problems(recipe: Recipe, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the examples of tasks that have their own, by language.

    Args:
        recipe: with its tasks.
        languages: those that are looked at; the source's are its training and dev examples, too.
    """
    for task in recipe.tasks:
        if task.kind == "documents":
            continue
        has_own = task.labels or task.kind == "questions"
        train = SplitScan() if has_own and recipe.source not in languages else scan_split(task, "train", recipe.source)
        labels = list(task.labels) or (sorted(train.labels) if train.whole else None)
        for language in languages:
            for message in _in_language(recipe, task, language, train, labels):
                yield language, f"{language}: task {task.name!r}, {message}"


def scan_split(task: Task, split: SplitName, language: str) -> SplitScan:
    """Read a split of a task in a language, and go on behind what is no example."""
    found = SplitScan()
    for example in islice(_examples(task, split, language), MAX_EXAMPLES):
        if isinstance(example, LingraftError):
            found.errors.append(str(example))
            continue
        found.count += 1
        for label in _labels_of(example):
            found.labels.setdefault(label, getattr(example, "place", ""))
    return found


def _in_language(
    recipe: Recipe, task: Task, language: str, train: SplitScan, labels: Sequence[str] | None
) -> Iterator[str]:
    looked: dict[SplitName, SplitScan] = {}
    if language == recipe.source:
        looked |= {"train": train, "dev": scan_split(task, "dev", language)}
        if labels is not None and len(labels) < 2 and task.kind != "questions":
            yield f"train: two or more labels are needed to tell apart; there are {list(labels)}. Add some with others."
            labels = None
    if task.covers(language):
        looked["test"] = scan_split(task, "test", language)
    for split, found in looked.items():
        yield from (f"{split}: {error}" for error in found.errors)
        if task.kind != "questions" and labels is not None:
            yield from (
                f"{split}: {place} has label {label!r}; the task knows {list(labels)}. Correct the label, or add "
                "training examples that have it."
                for label, place in sorted(found.labels.items())
                if label not in labels
            )


def _examples(task: Task, split: SplitName, language: str) -> Iterator[AnyExample | LingraftError]:
    source = getattr(task, split)
    try:
        if isinstance(source, TaskDataset):
            yield from _of_dataset(task, source, language)
        else:
            yield from _of_file(task, Path(source.path.replace("{language}", language)), language)
    except LingraftError as error:
        yield error


def _of_file(task: Task, path: Path, language: str) -> Iterable[AnyExample | LingraftError]:
    if task.kind == "questions":
        return squad.questions_or_errors(path)
    if task.kind == "tags":
        return sentences_or_errors(path)
    return examples_or_errors(path, language, task.kind == "pairs")


def _of_dataset(task: Task, source: TaskDataset, language: str) -> Iterable[AnyExample]:
    dataset = load_rows(source, language, f"task {task.name!r}")
    origin = f"dataset {source.dataset.replace('{language}', language)!r} in {language!r}"
    found = in_language((Row(origin, cells) for cells in dataset), language, origin)
    rows = (row.cells for row in islice(found, MAX_EXAMPLES))
    names = class_names(dataset.features)
    if task.kind == "questions":
        return squad.from_rows(rows, origin)
    if task.kind == "tags":
        return sentences_of(rows, origin, names)
    return examples_of(rows, origin, names, task.kind == "pairs")


def _labels_of(example: AnyExample) -> Sequence[str]:
    if isinstance(example, Example):
        return (example.label,)
    return example.tags if isinstance(example, Sentence) else ()
