"""First sentences of the paper's comparison: how much is saved and kept, over what, and how much is missing."""

import math
from collections import Counter
from collections.abc import Iterable

from lingraft.reports.formatting import counted
from lingraft.reports.paper.cost_tables import format_ratio, format_share
from lingraft.reports.paper.efficiency import Ratios, over_tasks
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant

_NO_TASK = "all tasks are the appendix's"


def summary(results: ResultsTable) -> list[str]:
    """A sentence per mini-model system, and one for what is missing."""
    return [
        *(_system(results, variant) for variant in results.mini_variants),
        *_missing(results),
        *_not_informative(results),
    ]


def _system(results: ResultsTable, variant: Variant) -> str:
    return f"{variant.system}: {_speed_up_clause(results, variant)}; {_retained_clause(results, variant)}."


def _speed_up_clause(results: ResultsTable, variant: Variant) -> str:
    sped = {task.title: results.speed_up(variant, task) for task in results.main_tasks}
    speed = over_tasks(sped.values())
    what = "over BL_BASE in compute to near-maximal performance"
    if speed is not None:
        return f"a speed-up of {format_ratio(speed)} {what} ({_counts(sped)})"
    reasons = (
        f"{task.title}: {_why_no_speed_up(results, variant, task, sped[task.title])}" for task in results.main_tasks
    )
    return f"no speed-up {what} ({'; '.join(reasons) or _NO_TASK})"


def _retained_clause(results: ResultsTable, variant: Variant) -> str:
    kept = {task.title: results.retained(variant, task) for task in results.main_tasks}
    retained = over_tasks(kept.values())
    if retained is not None:
        return f"{format_share(retained)} of BL_BASE's score at the end ({_counts(kept)})"
    reasons = (
        f"{title}: {', '.join(_per_reason(ratios.left_out.values(), len(ratios.left_out)))}"
        for title, ratios in kept.items()
    )
    return f"no share of BL_BASE's score at the end ({'; '.join(reasons) or _NO_TASK})"


def _why_no_speed_up(results: ResultsTable, variant: Variant, task: TaskFacts, ratios: Ratios) -> str:
    """What became of each language; one that is not informative may have been reached, or not, all the same."""
    reasons = []
    only = []
    for language in task.languages:
        reached = results.reached(variant, task, language)
        if isinstance(reached, MissingValue):
            reasons.append(reached.short)
        elif math.isinf(reached.estimate):
            reasons.append("never reached 95% of BL_BASE")
        elif results.is_informative(task, language):
            reasons.append(ratios.left_out[language])
        else:
            only.append(language)
    named = [f"reached 95% of BL_BASE only in languages that are not informative ({', '.join(only)})"] if only else []
    return ", ".join([*named, *_per_reason(reasons, len(task.languages))])


def _per_reason(reasons: Iterable[str], of: int) -> list[str]:
    """In how many of so many languages each reason holds."""
    return [f"{reason} in {count} of {counted(of, 'language')}" for reason, count in Counter(reasons).most_common()]


def _counts(by_task: dict[str, Ratios]) -> str:
    """How many languages of each task were counted."""
    return ", ".join(
        f"{title}: {len(ratios.by_language)} of {counted(len(ratios.by_language) + len(ratios.left_out), 'language')}"
        for title, ratios in by_task.items()
    )


def _missing(results: ResultsTable) -> list[str]:
    planned = _planned(results)
    holes = [cell for key in planned if isinstance(cell := results.cell(*key), MissingValue)]
    if not holes:
        return [f"All {len(planned)} cells of the comparison are there."]
    reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(hole.short for hole in holes).most_common())
    verb = "is" if len(holes) == 1 else "are"
    return [f"Of {counted(len(planned), 'cell')}, {len(holes)} {verb} missing: {reasons}."]


def _planned(results: ResultsTable) -> list[tuple[Variant, TaskFacts, str]]:
    """Every system in every language, and the further depths in the languages that have any."""
    tasks = results.records.tasks
    usual = [(variant, task, language) for variant in results.variants for task in tasks for language in task.languages]
    further = [
        (Variant(system, depth), task, language)
        for system in results.records.systems
        for task in tasks
        for language in results.depth_languages(system, task)
        for depth in results.depths(system)
        if Variant(system, depth) not in results.variants
    ]
    return [*usual, *further]


def _not_informative(results: ResultsTable) -> list[str]:
    named = [
        f"{task.title} {language}"
        for task in results.records.tasks
        for language in task.languages
        if not results.is_informative(task, language)
    ]
    if not named:
        return []
    return [
        f"Not informative, and left out of all means, since BL_BASE is less than 5 points above the trivial baseline: "
        f"{', '.join(named)}."
    ]


def basis(results: ResultsTable) -> list[str]:
    """What the numbers are of: the model, the seeds, the machine, the data."""
    records = results.records
    seeds = {len(point.scores.by_seed) for cell in records.cells for point in cell.points}
    finetuned = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(max(seeds, default=0))
    lines = [
        f"Source language {records.source}; a primary of {counted(records.layers, 'layer')}; mini-models and BL_SMALL "
        f"of {counted(records.depth, 'shared layer')} where no other depth is named. "
        f"Pretraining seed {records.pretraining_seed}; finetuning seeds per score: {finetuned}.",
        "A V100 is taken to do 30 TFLOP/s, as in the paper, so that its time is another word for FLOPs. A dash with a "
        "number is a hole; the same number is the same reason, which stands in short under the table, and of what "
        "failed, in full at the end. Means leave out what is marked, and where they are "
        "not over all languages, say over how many.",
    ]
    measured = [f"Seconds were measured on {records.machine}."] if records.machine else []
    return [*lines, *measured, *records.notes]
