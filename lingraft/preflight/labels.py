"""Labels of documents: one for each where a task needs them, and none that the task does not know."""

from collections.abc import Iterator, Mapping, Sequence

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.data.splits import SPLITS, SplitName
from lingraft.data.text import LABELLING, labelling_tasks
from lingraft.preflight import samples
from lingraft.preflight.samples import TextSample

KnownLabels = Mapping[str, Sequence[str]]
"""Labels by task; a task whose labels a sample cannot tell is missing."""


def known_labels(recipe: Recipe, taken: Mapping[str, TextSample]) -> KnownLabels:
    """Return the labels of the tasks of kind 'documents': the recipe's, else those of the source's training documents.

    The source is read if it is not among the samples.
    """
    tasks = labelling_tasks(recipe, recipe.source.language)
    found: dict[str, Sequence[str]] = {task.name: task.labels for task in tasks if task.labels}
    if len(found) < len(tasks):
        source = taken.get(recipe.source.language)
        if source is None:
            source = samples.take_sample(recipe.text, recipe.split, recipe.source.language)
            samples.scan_rest(source, recipe.text, recipe.split)
        if source.knows_labels and not source.errors:
            found = {task.name: sorted(source.labels["train"]) for task in tasks} | found
    return found


def label_problems(recipe: Recipe, sample: TextSample, known_labels: KnownLabels) -> Iterator[str]:
    """Yield documents of a language that lack a label, or have one that a task does not know."""
    tasks = labelling_tasks(recipe, sample.language)
    if tasks and sample.unlabelled:
        count = len(sample.unlabelled)
        more = f" and {count - 1:,} further documents have" if count > 1 else " has"
        yield (
            f"{sample.language}: {sample.unlabelled[0]}{more} no label, and task {tasks[0].name!r} needs one for each "
            f"document. {LABELLING}"
        )
    for task in tasks:
        yield from _of_task(recipe, task, sample, known_labels.get(task.name))


def _of_task(recipe: Recipe, task: Task, sample: TextSample, labels: Sequence[str] | None) -> Iterator[str]:
    if labels is None:
        return
    is_source = sample.language == recipe.source.language
    if is_source and sample.has_labels and len(labels) < 2:
        yield (
            f"{sample.language}: task {task.name!r} needs two or more labels to tell apart; the training documents "
            f"have {list(labels)}. Add documents with others."
        )
        return
    # The targets' labels are only used for zero-shot scores, on the test split.
    splits: tuple[SplitName, ...] = SPLITS if is_source else ("test",)
    for split in splits:
        for label, count in sorted(sample.labels[split].items()):
            if label not in labels:
                more = f" and {count - 1:,} more documents of the {split} split have" if count > 1 else " has"
                yield (
                    f"{sample.language}: {sample.first_places[split, label]}{more} label {label!r}; task {task.name!r} "
                    f"knows {list(labels)}. Correct the label, or add training documents in "
                    f"{recipe.source.language!r} with it."
                )
