"""First sentences of the paper's comparison: how much is saved and kept, over what, and how much is missing."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from lingraft.reports.paper.efficiency import Ratios, over_tasks
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.report_table import format_ratio
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.tables import counted, percent

_NO_TASK = "all tasks are the appendix's"


def summary(results: ResultsTable) -> list[str]:
    """Return a sentence per mini-model system, one for what is missing, and one for what does not count."""
    return [
        *(_describe_system(results, variant) for variant in results.mini_variants),
        _describe_missing(results),
        *_describe_uninformative(results),
    ]


def _describe_system(results: ResultsTable, variant: Variant) -> str:
    tasks = {task.title: task for task in results.main_tasks}
    sped = {title: results.speed_up(variant, task) for title, task in tasks.items()}
    kept = {title: results.retained(variant, task) for title, task in tasks.items()}
    speed, share = over_tasks(sped.values()), over_tasks(kept.values())
    what = "over BL_BASE in compute to near-maximal performance"
    if speed is not None:
        first = f"a speed-up of {format_ratio(speed)} {what} ({_coverage(sped)})"
    else:
        reasons = (f"{title}: {_why_no_speed_up(results, variant, task, sped[title])}" for title, task in tasks.items())
        first = f"no speed-up {what} ({'; '.join(reasons) or _NO_TASK})"
    if share is not None:
        second = f"{percent(share)} of BL_BASE's score at the end ({_coverage(kept)})"
    else:
        reasons = (
            f"{title}: {', '.join(_count_reasons(ratios.left_out.values(), ratios.count))}"
            for title, ratios in kept.items()
        )
        second = f"no share of BL_BASE's score at the end ({'; '.join(reasons) or _NO_TASK})"
    return f"{variant.system}: {first}; {second}."


def _why_no_speed_up(results: ResultsTable, variant: Variant, task: TaskFacts, ratios: Ratios) -> str:
    """Say what became of each language; one that is not informative may have been reached, or not, all the same."""
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
    return ", ".join([*named, *_count_reasons(reasons, len(task.languages))])


def _count_reasons(reasons: Iterable[str], of: int) -> list[str]:
    """Say in how many of so many languages each reason holds."""
    return [f"{reason} in {count} of {counted(of, 'language')}" for reason, count in Counter(reasons).most_common()]


def _coverage(by_task: Mapping[str, Ratios]) -> str:
    """Say how many languages of each task were counted."""
    return ", ".join(
        f"{title}: {len(ratios.by_language)} of {counted(ratios.count, 'language')}"
        for title, ratios in by_task.items()
    )


def _describe_missing(results: ResultsTable) -> str:
    planned = _planned(results)
    missing = [cell for key in planned if isinstance(cell := results.cell(*key), MissingValue)]
    if not missing:
        return f"All {len(planned)} cells of the comparison are there."
    reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(cell.short for cell in missing).most_common())
    verb = "is" if len(missing) == 1 else "are"
    return f"Of {counted(len(planned), 'cell')}, {len(missing)} {verb} missing: {reasons}."


def _planned(results: ResultsTable) -> list[tuple[Variant, TaskFacts, str]]:
    """Return every system in every language, and the further depths in the languages that have any."""
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


def _describe_uninformative(results: ResultsTable) -> list[str]:
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
    """Return paragraphs on what the numbers are of: the model, the seeds, the machine, the data."""
    records = results.records
    seeds = {len(point.scores.by_seed) for cell in records.cells for point in cell.points}
    finetuned = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(max(seeds, default=0))
    return [
        f"Source language {records.source}; a primary of {counted(records.layers, 'layer')}; mini-models and BL_SMALL "
        f"of {counted(records.depth, 'shared layer')} where no other depth is named. "
        f"Pretraining seed {records.pretraining_seed}; finetuning seeds per score: {finetuned}.",
        "A V100 is taken to do 30 TFLOP/s, as in the paper, so that its time is another word for FLOPs. A dash with a "
        "number is a hole; the same number is the same reason, which stands in short under the table, and of what "
        "failed, in full at the end. Means leave out what is marked, and where they are "
        "not over all languages, say over how many.",
        *([f"Seconds were measured on {records.machine}."] if records.machine else []),
        *records.notes,
    ]
