"""First sentences of the paper's comparison: how much is saved and kept, over what, and how much is missing."""

from collections import Counter
from collections.abc import Callable, Mapping

from lingraft.reports.paper.efficiency import Ratios, over_tasks
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.report_table import format_ratio
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.tables import counted, percent


def summary(results: ResultsTable) -> list[str]:
    """Return a sentence per mini-model system, one for what is missing, and one for what does not count."""
    return [
        *(_describe_system(results, variant) for variant in results.mini_variants),
        _describe_missing(results),
        *_describe_uninformative(results),
    ]


def _describe_system(results: ResultsTable, variant: Variant) -> str:
    sped = {task.title: results.speed_up(variant, task) for task in results.main_tasks}
    kept = {task.title: results.retained(variant, task) for task in results.main_tasks}
    what = "over BL_BASE in compute to near-maximal performance"
    first = _describe_ratios(sped, f"speed-up {what}", lambda mean: f"a speed-up of {format_ratio(mean)} {what}")
    second = _describe_ratios(
        kept,
        "share of BL_BASE's score at the end",
        lambda mean: f"{percent(mean)} of BL_BASE's score at the end",
    )
    return f"{variant.system}: {first}; {second}."


def _describe_ratios(by_task: Mapping[str, Ratios], what: str, write: Callable[[float], str]) -> str:
    """Return the mean and over how many languages it is, or why there is none."""
    overall = over_tasks(by_task.values())
    if overall is not None:
        over = (f"{title}: {len(ratios.by_language)} of {_languages(ratios)}" for title, ratios in by_task.items())
        return f"{write(overall)} ({', '.join(over)})"
    reasons = []
    for title, ratios in by_task.items():
        counts = Counter(ratios.left_out.values()).most_common()
        reasons.append(f"{title}: " + ", ".join(f"{why} in {count} of {_languages(ratios)}" for why, count in counts))
    return f"no {what} ({'; '.join(reasons) or 'all tasks are of the appendix'})"


def _languages(ratios: Ratios) -> str:
    return counted(ratios.count, "language")


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
        "number is a missing value; the same number is the same reason, which stands in short under the table, and of "
        "what failed, in full at the end. Means leave out what is marked, and where they are "
        "not over all languages, say over how many.",
        *([f"Seconds were measured on {records.machine}."] if records.machine else []),
        *records.notes,
    ]
