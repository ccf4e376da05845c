"""The report's first sentences: what was gained, against what, at what share of the cost."""

from collections.abc import Callable, Sequence
from statistics import mean

from lingraft.report_columns import percent
from lingraft.report_records import Records
from lingraft.results import LanguageResult, TaskScores

Results = Sequence[LanguageResult]


def summary(records: Records) -> list[tuple[str, str]]:
    """For every depth, what is spoken of and a few sentences; numbers are means over the languages named."""
    depths = sorted({row.depth for row in records.languages})
    layers = records.source.layers
    standard = records.at(layers)
    return [
        (_subject(records.at(depth)), " ".join([*_gained(records.at(depth)), *_compared(records.at(depth), standard)]))
        for depth in depths
        if depth != layers or len(depths) == 1
    ]


def _subject(results: Results) -> str:
    return f"Over {results[0].depth} of {results[0].layers} layers ({', '.join(row.language for row in results)}):"


def _gained(results: Results) -> list[str]:
    before, after = _mean(results, lambda r: r.masked.primary_initial), _mean(results, lambda r: r.masked.primary)
    spent = _mean(results, lambda r: r.cost.flops / r.whole_flops)
    sentences = [
        f"masked-token accuracy of the primary is {percent(after)}, against {percent(before)} "
        "with embeddings as initialised."
    ]
    tasks = [row.task for row in results if row.task]
    if len(tasks) == len(results):
        sentences.append(_task_gained(tasks))
    return [*sentences, f"This took {percent(spent)} of the operations that all layers would have taken."]


def _task_gained(tasks: Sequence[TaskScores]) -> str:
    initial = [task.initial.mean for task in tasks if task.initial]
    than_initial = f", {percent(mean(initial))} as initialised" if len(initial) == len(tasks) else ""
    return (
        f"Zero-shot accuracy on {tasks[0].name} is {percent(mean(task.accuracy.mean for task in tasks))}, against "
        f"{percent(mean(task.majority for task in tasks))} for the majority class{than_initial}."
    )


def _compared(results: Results, standard: Results) -> list[str]:
    """Against standard adaptation, over the languages that have both."""
    shared = {row.language for row in results} & {row.language for row in standard}
    if not shared or results[0].standard:
        return []
    ours, theirs = ([row for row in rows if row.language in shared] for rows in (results, standard))
    kept = _mean(ours, lambda r: r.masked.primary) / _mean(theirs, lambda r: r.masked.primary)
    sentence = (
        f"Beside standard adaptation over all layers ({', '.join(row.language for row in ours)}) "
        f"that keeps {percent(kept)} of its masked-token accuracy"
    )
    if all(row.task for row in [*ours, *theirs]):
        lead = _mean(ours, _accuracy) - _mean(theirs, _accuracy)
        sentence += f" and is {abs(100 * lead):.1f} points {'above' if lead >= 0 else 'below'} it in zero-shot accuracy"
    return [sentence + "."]


def _accuracy(row: LanguageResult) -> float:
    return row.task.accuracy.mean if row.task else 0.0


def _mean(results: Results, number: Callable[[LanguageResult], float]) -> float:
    return mean(number(row) for row in results)
