"""Recall per class, beside accuracy: a rare class that is never found hardly changes accuracy."""

from collections.abc import Iterator
from dataclasses import dataclass

from lingraft.data.languages import language_name
from lingraft.reports.run.columns import UNKNOWN
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.stages.results import TaskScores
from lingraft.tables import percent
from lingraft.tasks.class_scores import ClassScore, class_scores


@dataclass(frozen=True)
class Recall:
    """Share of the test examples of one class that one evaluation recognises."""

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

    def __str__(self) -> str:
        if self.score.recall is None:
            return UNKNOWN
        return "never" if self.score.never_found else percent(self.score.recall)


@dataclass(frozen=True)
class ClassTable:
    """Recall of each class of a task, over all finetuning seeds: one row a class, one column an evaluation."""

    task: str
    columns: list[str]
    """Titles of the evaluations: the source first, then languages with their layers."""
    rows: list[tuple[str, list[Recall]]]
    """Labels with their names, and a recall for every column."""

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each class that has test examples of which none is recognised."""
        for label, recalls in self.rows:
            tested = [place for place, recall in enumerate(recalls) if recall.examples]
            missed = [place for place in tested if recalls[place].score.never_found]
            if missed:
                where = "any language" if missed == tested else ", ".join(self.columns[place] for place in missed)
                counts = sorted({recalls[place].examples for place in missed})
                number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
                examples = "test example" if counts[-1] == 1 else "test examples"
                yield f"{label} is never found in {where}: none of its {number} {examples} is recognised."


def class_evaluations(records: RunRecords, task: str) -> list[tuple[str, TaskScores]]:
    """Return scores that tell classes apart with a title, the source's first.

    Layers are named where a language was adapted over several.
    """
    found = [(language_name(records.source.language), records.source.task_scores.get(task))]
    for result in records.languages:
        several = len(records.of_language(result.language)) > 1
        layers = f" ({AdaptedLayers.of_result(result).of(result.layers)} layers)" if several else ""
        found.append((f"{language_name(result.language)}{layers}", result.task_scores.get(task)))
    return [(title, scores) for title, scores in found if scores and scores.confusion]


def class_table(records: RunRecords, task: str) -> ClassTable | None:
    """Return the recall of a task's classes; None for a task that has none."""
    evaluations = class_evaluations(records, task)
    if not evaluations:
        return None
    columns = [
        [Recall(score, len(scores.score.by_seed)) for score in class_scores(scores.confusion)]
        for _, scores in evaluations
    ]
    labels = [records.label(task, label) for label in evaluations[0][1].labels]
    rows = [(label, [column[place] for column in columns]) for place, label in enumerate(labels)]
    return ClassTable(task, [title for title, _ in evaluations], rows)


def class_tables(records: RunRecords) -> list[ClassTable]:
    """Return the tables of all tasks that have classes."""
    return [table for task in records.tasks if (table := class_table(records, task))]


def class_warnings(records: RunRecords) -> list[str]:
    """Return the sentences on classes of any task that are never found."""
    return [warning for table in class_tables(records) for warning in table.warnings()]
