"""The report's first sentences: what was gained, against what, at what share of the cost."""

from collections.abc import Callable, Sequence
from statistics import mean

from lingraft.data.languages import language_name
from lingraft.reports.run.columns import baseline_label
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.stages.results import LanguageResult, metric_label
from lingraft.tables import percent
from lingraft.tasks.class_scores import MACRO_F1

_Results = Sequence[LanguageResult]


def summary(records: RunRecords) -> list[tuple[str, str]]:
    """Return a subject and a few sentences for every mini-model; numbers are means over the languages named."""
    whole = AdaptedLayers(records.source.layers)
    found = []
    for layers in records.layer_choices:
        if layers == whole and len(records.layer_choices) > 1:
            continue
        results = records.results_over(layers)
        first = results[0]
        fresh = f" and {first.fresh_layers} fresh ones" if first.fresh_layers else ""
        subject = f"Over {layers.depths} of {first.layers} layers{fresh} ({_names(results)}):"
        compared = [] if layers == whole else _compare(records, results, records.results_over(whole))
        found.append((subject, " ".join([*_describe_gain(records, results), *compared])))
    return found


def _describe_gain(records: RunRecords, results: _Results) -> list[str]:
    spent = _mean(results, lambda row: row.cost.flops / row.whole_flops)
    return [
        *_describe_masked(results),
        *(_describe_task(task, results) for task in records.tasks if _tested(results, task)),
        f"This took {percent(spent)} of the operations that all layers would have taken.",
    ]


def _describe_masked(results: _Results) -> list[str]:
    scores = [row.masked for row in results if row.masked]
    if len(scores) < len(results):
        return []
    before, after = mean(score.primary_initial for score in scores), mean(score.primary for score in scores)
    return [
        f"masked-token accuracy of the primary is {percent(after)}, against {percent(before)} with embeddings as "
        "initialised."
    ]


def _describe_task(task: str, results: _Results) -> str:
    tested = _tested(results, task)
    found = [row.task_scores[task] for row in tested]
    macro = [scores.others[MACRO_F1].mean for scores in found if MACRO_F1 in scores.others]
    initial = [scores.initial.mean for scores in found if scores.initial]
    # Further means are told where every language has the score.
    brackets = f" ({metric_label(MACRO_F1)} {percent(mean(macro))})" if len(macro) == len(found) else ""
    than_initial = f", {percent(mean(initial))} as initialised" if len(initial) == len(found) else ""
    return (
        f"Zero-shot {found[0].metric} on {task}{_where(tested, results)} is "
        f"{percent(mean(scores.score.mean for scores in found))}{brackets}, against "
        f"{percent(mean(scores.baseline for scores in found))} for the {baseline_label(found[0])}{than_initial}."
    )


def _compare(records: RunRecords, results: _Results, standard: _Results) -> list[str]:
    """Compare with standard adaptation, over the languages that have both."""
    ours, theirs = _paired(results, standard)
    if not ours:
        return []
    scores = [[row.masked.primary for row in rows if row.masked] for rows in (ours, theirs)]
    measured = all(len(each) == len(ours) for each in scores)
    kept = [f"keeps {percent(sum(scores[0]) / sum(scores[1]))} of its masked-token accuracy"] if measured else []
    clauses = kept + [
        _compare_on(task, ours, theirs) for task in records.tasks if _tested(ours, task) and _tested(theirs, task)
    ]
    if not clauses:
        return []
    return [f"Beside standard adaptation over all layers ({_names(ours)}) that {' and '.join(clauses)}."]


def _compare_on(task: str, ours: _Results, theirs: _Results) -> str:
    tested, reference = _paired(_tested(ours, task), _tested(theirs, task))
    own, base = (_mean(results, lambda row: row.task_scores[task].score.mean) for results in (tested, reference))
    side = "above" if own >= base else "below"
    metric = tested[0].task_scores[task].metric
    return f"is {abs(100 * (own - base)):.1f} points {side} it in zero-shot {metric} on {task}{_where(tested, ours)}"


def _tested(results: _Results, task: str) -> _Results:
    return [row for row in results if task in row.task_scores]


def _paired(ours: _Results, theirs: _Results) -> tuple[_Results, _Results]:
    """Return, of both, the languages that the other has too."""
    shared = {row.language for row in ours} & {row.language for row in theirs}
    first, second = ([row for row in rows if row.language in shared] for rows in (ours, theirs))
    return first, second


def _where(tested: _Results, results: _Results) -> str:
    """Name the languages where they are not all of those spoken of."""
    return "" if len(tested) == len(results) else f" ({_names(tested)})"


def _names(results: _Results) -> str:
    return ", ".join(language_name(row.language) for row in results)


def _mean(results: _Results, number: Callable[[LanguageResult], float]) -> float:
    return mean(number(row) for row in results)
