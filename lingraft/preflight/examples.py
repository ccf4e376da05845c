"""Task examples in files and datasets of their own: there, well-formed, and with labels that the task knows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import ParallelDocuments, Task
from lingraft.data.splits import SplitName
from lingraft.errors import LingraftError
from lingraft.tasks.examples import AnyExample, read_examples
from lingraft.tasks.labelled_texts import Example
from lingraft.tasks.searches import load_searches
from lingraft.tasks.tagged_sentences import Sentence

MAX_EXAMPLES = 500_000
"""Examples of a file or dataset that are read, at most."""


@dataclass
class SplitScan:
    """Contents of one split of a task in one language."""

    errors: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """First place of each label."""
    count: int = 0

    @property
    def whole(self) -> bool:
        """Whether everything was read and could be."""
        return not self.errors and self.count < MAX_EXAMPLES


def example_problems(recipe: Recipe, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield problems with the examples of tasks that have their own, by language.

    The source is checked with its training and dev examples, too; its labels are read even if it is not checked.
    """
    for task in recipe.tasks:
        if task.reads_text:
            continue
        labels_are_given = task.labels or not task.has_labels
        if recipe.source.language in languages or not labels_are_given:
            train = scan_split(task, "train", recipe.source.language, recipe.source.language)
        else:
            train = SplitScan()
        labels = list(task.labels) or (sorted(train.labels) if train.whole else None)
        for language in languages:
            for message in _in_language(recipe, task, language, train, labels):
                yield language, f"{language}: task {task.name!r}, {message}"


def scan_split(task: Task, split: SplitName, language: str, source: str) -> SplitScan:
    """Read a split of a task in a language, and go on behind errors; an imported task may have none."""
    found = SplitScan()
    if getattr(task, split) is None:
        return found
    if task.kind == "retrieval" and split == "test":
        return _scan_searches(task, language, source)
    for example in islice(read_examples(task, split, language), MAX_EXAMPLES):
        if isinstance(example, LingraftError):
            found.errors.append(str(example))
            continue
        found.count += 1
        for label in _labels_of(example):
            found.labels.setdefault(label, getattr(example, "place", ""))
    return found


def _scan_searches(task: Task, language: str, source: str) -> SplitScan:
    """Read the searches of a task of kind 'retrieval'; those over parallel documents are checked with the text."""
    found = SplitScan()
    if not isinstance(task.test, ParallelDocuments):
        try:
            found.count = sum(len(search.queries) for search in load_searches(task, language, source))
        except LingraftError as error:
            found.errors.append(str(error))
    return found


def _in_language(
    recipe: Recipe, task: Task, language: str, train: SplitScan, labels: Sequence[str] | None
) -> Iterator[str]:
    looked: dict[SplitName, SplitScan] = {}
    if language == recipe.source.language:
        looked |= {"train": train, "dev": scan_split(task, "dev", language, language)}
        if task.train is None and not (task.is_imported and recipe.source.model):
            yield "train: there are no examples, which finetuning needs. Name their file or dataset: [[tasks]] train."
        if labels is not None and len(labels) < 2 and task.has_labels:
            yield f"train: two or more labels are needed to tell apart; there are {list(labels)}. Add some with others."
            labels = None
    if recipe.judges(task, language):
        looked["test"] = scan_split(task, "test", language, recipe.source.language)
    for split, found in looked.items():
        yield from (f"{split}: {error}" for error in found.errors)
        if task.has_labels and labels is not None:
            yield from (
                f"{split}: {place} has label {label!r}; the task knows {list(labels)}. Correct the label, or add "
                "training examples that have it."
                for label, place in sorted(found.labels.items())
                if label not in labels
            )


def _labels_of(example: AnyExample) -> Sequence[str]:
    if isinstance(example, Example):
        return (example.label,)
    return example.tags if isinstance(example, Sentence) else ()
