"""The report's first sentences: what was gained, against what, at what share of the cost."""

from collections.abc import Callable, Sequence
from statistics import mean

from lingraft.data.languages import language_name
from lingraft.reports.run.columns import percent
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.reports.run.task_columns import baseline_label, metric_label
from lingraft.stages.results import LanguageResult, TaskScores
from lingraft.tasks.class_scores import MACRO_F1

Results = Sequence[LanguageResult]


def summary(records: RunRecords) -> list[tuple[str, str]]:
    """For every mini-model, what is spoken of and a few sentences; numbers are means over the languages named."""
    whole = AdaptedLayers(records.source.layers)
    return [
        (
            _subject(records.results_over(layers)),
            " ".join([*_gained(records, layers), *_compared(records, layers, whole)]),
        )
        for layers in records.layer_choices
        if layers != whole or len(records.layer_choices) == 1
    ]


def _subject(results: Results) -> str:
    first = results[0]
    fresh = f" and {first.fresh_layers} fresh ones" if first.fresh_layers else ""
    return f"Over {AdaptedLayers.of_result(first).depths} of {first.layers} layers{fresh} ({_names(results)}):"


def _gained(records: RunRecords, layers: AdaptedLayers) -> list[str]:
    results = records.results_over(layers)
    before = _mean(results, lambda r: r.masked.primary_initial)
    after = _mean(results, lambda r: r.masked.primary)
    spent = _mean(results, lambda r: r.cost.flops / r.whole_flops)
    return [
        f"masked-token accuracy of the primary is {percent(after)}, against {percent(before)} "
        "with embeddings as initialised.",
        *(_gained_on(task, results) for task in records.tasks if _tested(results, task)),
        f"This took {percent(spent)} of the operations that all layers would have taken.",
    ]


def _gained_on(task: str, results: Results) -> str:
    tested = _tested(results, task)
    found = [row.task_scores[task] for row in tested]
    initial = [scores.initial.mean for scores in found if scores.initial]
    than_initial = f", {percent(mean(initial))} as initialised" if len(initial) == len(found) else ""
    return (
        f"Zero-shot {found[0].metric} on {task}{_where(tested, results)} is "
        f"{percent(mean(scores.score.mean for scores in found))}{_macro(found)}, against "
        f"{percent(mean(scores.baseline for scores in found))} for the {baseline_label(found[0])}{than_initial}."
    )


def _macro(found: Sequence[TaskScores]) -> str:
    """Macro-F1 in brackets, where every language has it."""
    scores = [each.others[MACRO_F1].mean for each in found if MACRO_F1 in each.others]
    return f" ({metric_label(MACRO_F1)} {percent(mean(scores))})" if len(scores) == len(found) else ""


def _compared(records: RunRecords, layers: AdaptedLayers, whole: AdaptedLayers) -> list[str]:
    """Against standard adaptation, over the languages that have both."""
    ours, theirs = _paired(records.results_over(layers), records.results_over(whole))
    if not ours or layers == whole:
        return []
    kept = _mean(ours, lambda r: r.masked.primary) / _mean(theirs, lambda r: r.masked.primary)
    leads = [_lead(task, ours, theirs) for task in records.tasks if _tested(ours, task) and _tested(theirs, task)]
    said = [f"keeps {percent(kept)} of its masked-token accuracy", *leads]
    return [f"Beside standard adaptation over all layers ({_names(ours)}) that {' and '.join(said)}."]


def _lead(task: str, ours: Results, theirs: Results) -> str:
    tested, reference = _paired(_tested(ours, task), _tested(theirs, task))
    lead = _score(task, tested) - _score(task, reference)
    metric = tested[0].task_scores[task].metric
    side = "above" if lead >= 0 else "below"
    return f"is {abs(100 * lead):.1f} points {side} it in zero-shot {metric} on {task}{_where(tested, ours)}"


def _score(task: str, results: Results) -> float:
    return _mean(results, lambda row: row.task_scores[task].score.mean)


def _tested(results: Results, task: str) -> Results:
    return [row for row in results if task in row.task_scores]


def _paired(ours: Results, theirs: Results) -> tuple[Results, Results]:
    """Of both, the languages that the other has too."""
    shared = {row.language for row in ours} & {row.language for row in theirs}
    first, second = ([row for row in rows if row.language in shared] for rows in (ours, theirs))
    return first, second


def _where(tested: Results, results: Results) -> str:
    """Names the languages where they are not all of those spoken of."""
    return "" if len(tested) == len(results) else f" ({_names(tested)})"


def _names(results: Results) -> str:
    return ", ".join(language_name(row.language) for row in results)


def _mean(results: Results, number: Callable[[LanguageResult], float]) -> float:
    return mean(number(row) for row in results)
