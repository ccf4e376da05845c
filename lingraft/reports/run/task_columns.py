"""What the report says of a task: the columns of its scores, and what these are to be seen against."""

from collections.abc import Callable
from typing import TypeVar

from lingraft.data.languages import language_name
from lingraft.reports.run.columns import Column, Group, count, percent
from lingraft.reports.run.records import RunRecords
from lingraft.stages.results import LanguageResult, TaskScores
from lingraft.tasks.class_scores import MACRO_F1

_T = TypeVar("_T")
_MEANINGS = {
    MACRO_F1: "Mean of the classes' F1 with the learned embeddings: a rare class counts as much as a frequent one, so "
    "that a class that is never found shows.",
}


def metric_label(metric: str) -> str:
    """A metric's name in words, such as "macro F1" for macro_F1."""
    return metric.replace("_", " ")


def is_classification(task: TaskScores) -> bool:
    """Whether the score is the accuracy of naming one of a few classes."""
    return task.metric == "accuracy" and bool(task.labels)


def baseline_label(task: TaskScores) -> str:
    """What the score is seen against."""
    return "majority class" if is_classification(task) else "trivial answer"


def baseline_summary(task: TaskScores) -> str:
    """What the score is seen against in numbers, and what both were taken on."""
    return (
        f"{baseline_label(task)} {percent(task.baseline)}; {count(task.examples)} test examples, "
        f"{count(task.truncated)} of them cut to fit a block"
    )


def task_group(records: RunRecords, task: str) -> Group:
    """Zero-shot scores on a task; a language that was not tested on it has none."""
    scores = records.scores(task)
    title = f"zero-shot {scores.metric}, {task}"
    main = _main(task, scores.metric, language_name(records.source.language))
    further = (_further(task, metric) for metric in scores.others)
    return Group(title, title, (*main, *further, *_basis(task, scores)))


def _main(task: str, metric: str, source: str) -> tuple[Column, Column]:
    return (
        Column(
            "before",
            "before",
            f"{_capital(metric)} with the embeddings as initialised, untrained.",
            _value_on(task, lambda found: found.initial.mean if found.initial else None),
            percent,
        ),
        Column(
            title="after",
            short="after",
            meaning=f"{_capital(metric)} with the learned embeddings; the task itself was learned in {source} "
            "only. ± is the standard deviation over finetuning seeds.",
            value=_value_on(task, lambda found: found.score.mean),
            show=percent,
            scores=_value_on(task, lambda found: found.score),
        ),
    )


def _further(task: str, metric: str) -> Column:
    return Column(
        title=metric_label(metric),
        short=metric_label(metric),
        meaning=_MEANINGS.get(metric, f"{_capital(metric_label(metric))} with the learned embeddings."),
        value=_value_on(task, lambda found: found.others[metric].mean if metric in found.others else None),
        show=percent,
        scores=_value_on(task, lambda found: found.others.get(metric)),
    )


def _basis(task: str, scores: TaskScores) -> tuple[Column, Column, Column]:
    title = "trivial"
    meaning = f"{_capital(scores.metric)} of the best answer that takes no model, such as a constant."
    if is_classification(scores):
        title = "majority"
        meaning = "Accuracy of always answering with the test examples' most frequent label."
    return (
        Column(title, title, meaning, _value_on(task, lambda found: found.baseline), percent),
        Column("examples", "tests", "Test examples.", _value_on(task, lambda found: found.examples), count),
        Column(
            "long",
            "long",
            "Of these, examples that do not fit a block; only a part of each is read.",
            _value_on(task, lambda found: found.truncated),
            count,
        ),
    )


def _value_on(task: str, take: Callable[[TaskScores], _T]) -> Callable[[LanguageResult], _T | None]:
    def found(result: LanguageResult) -> _T | None:
        scores = result.task_scores.get(task)
        return None if scores is None else take(scores)

    return found


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
