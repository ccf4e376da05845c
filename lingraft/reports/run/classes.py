"""Recall per class, beside accuracy: a rare class that is never found hardly changes accuracy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingraft.data.languages import language_name
from lingraft.reports.run.columns import UNKNOWN, percent
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.stages.results import TaskScores
from lingraft.tasks.class_scores import ClassScore, class_scores

NEVER = "never"
"""Shown in place of a recall of 0."""


@dataclass(frozen=True)
class Recall:
    """How often one class is recognised by one evaluation."""

    score: ClassScore
    seeds: int

    @property
    def examples(self) -> int:
        """Test examples of the class."""
        return self.score.examples // self.seeds

    @property
    def share(self) -> float:
        """Recall, 0 where the class has no examples."""
        return self.score.recall or 0.0

    @property
    def shown(self) -> str:
        """The recall as a percentage; a word where it is 0."""
        if self.score.recall is None:
            return UNKNOWN
        return NEVER if self.score.never_found else percent(self.score.recall)


@dataclass(frozen=True)
class ClassTable:
    """Recall of each class of a task, over all finetuning seeds: one row a class, one column an evaluation."""

    task: str
    columns: list[str]
    """What was evaluated: the source first, then languages with their layers."""
    rows: list[tuple[str, list[Recall]]]
    """Labels with their names, and a recall for every column."""

    @property
    def never_found(self) -> Iterator[str]:
        """A sentence for each class that has test examples of which none is recognised."""
        for label, recalls in self.rows:
            tested = [place for place, recall in enumerate(recalls) if recall.examples]
            missed = [place for place in tested if recalls[place].score.never_found]
            if missed:
                where = "any language" if missed == tested else ", ".join(self.columns[place] for place in missed)
                counts = sorted({recalls[place].examples for place in missed})
                number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
                examples = "test example" if counts[-1] == 1 else "test examples"
                yield f"{label} is never found in {where}: none of its {number} {examples} is recognised."


def class_table(records: RunRecords, task: str) -> ClassTable | None:
    """The recall of a task's classes; None for a task that has none."""
    columns = [(title, scores) for title, scores in _evaluations(records, task) if scores.confusion]
    if not columns:
        return None
    by_column = [_recalls(scores) for _, scores in columns]
    labels = columns[0][1].labels
    rows = [(records.label(task, label), [each[place] for each in by_column]) for place, label in enumerate(labels)]
    return ClassTable(task, [title for title, _ in columns], rows)


def class_tables(records: RunRecords) -> list[ClassTable]:
    """The tables of all tasks that have classes."""
    return [table for task in records.tasks if (table := class_table(records, task))]


def _recalls(scores: TaskScores) -> Sequence[Recall]:
    seeds = len(scores.score.by_seed)
    return [Recall(score, seeds) for score in class_scores(scores.confusion)]


def _evaluations(records: RunRecords, task: str) -> Iterator[tuple[str, TaskScores]]:
    """Scores by what was evaluated; layers are named where a language was adapted over several."""
    if task in records.source.task_scores:
        yield language_name(records.source.language), records.source.task_scores[task]
    for result in records.tested_on(task):
        name = language_name(result.language)
        several = len(records.of_language(result.language)) > 1
        yield (
            f"{name} ({AdaptedLayers.of_result(result).of(result.layers)} layers)" if several else name,
            result.task_scores[task],
        )
