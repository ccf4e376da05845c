"""The report in a few lines of Markdown: the description of a pipeline's run on MLflow's pages."""

from lingraft.data.languages import language_name, name_and_tag
from lingraft.huggingface.card_data import markdown_table
from lingraft.reports.run.classes import class_tables
from lingraft.reports.run.columns import percent
from lingraft.reports.run.page import PAGE_FILE
from lingraft.reports.run.records import ResultRow, RunRecords
from lingraft.reports.run.summary import summary
from lingraft.reports.run.task_columns import metric_label

REPORT = "report"
"""Folder of the report among the run's artifacts."""


def run_title(records: RunRecords) -> str:
    """A short name for the run, such as "language: German, Turkish"."""
    return f"language: {', '.join(map(language_name, records.names))}"


def run_description(records: RunRecords) -> str:
    """What was gained, the gate's verdicts, what to beware of, and where the whole report is."""
    targets = ", ".join(map(name_and_tag, records.names))
    parts = [
        f"**From {name_and_tag(records.source.language)} to {targets}.** {_counted(records)}The whole report is the "
        f"artifact `{REPORT}/{PAGE_FILE}` of this run.",
        *(f"**FAILED: {name_and_tag(language)}**: {reason}" for language, reason in records.failed.items()),
        *(f"**WARNING**: {said}" for found in class_tables(records) for said in found.never_found),
        *(f"{subject} {said}" for subject, said in summary(records)),
        _scores(records),
        *_verdicts(records),
        "Each stage is a run of its own below this one.",
    ]
    return "\n\n".join(parts)


def headline_metrics(records: RunRecords) -> dict[str, float]:
    """The scores of every evaluation, by names that MLflow groups by language and layers."""
    found: dict[str, float] = {}
    for result in records.languages:
        name = f"{result.language} over {result.depth} of {result.layers}/"
        found[f"{name}masked_accuracy"] = result.masked.primary
        if result.alignment:
            found[f"{name}alignment"] = result.alignment.top.accuracy
        for task in result.tasks:
            found[f"{name}{task.name}_{task.metric}"] = task.score.mean
            found |= {f"{name}{task.name}_{metric}": scores.mean for metric, scores in task.others.items()}
    return found


def _counted(records: RunRecords) -> str:
    """How many languages the gate promoted."""
    if not records.verdicts:
        return ""
    promoted = sum(verdict.promoted for verdict in records.verdicts.values())
    return f"The gate promoted {promoted} of {len(records.verdicts)} languages. "


def _scores(records: RunRecords) -> str:
    metrics = [
        (task, metric)
        for task in records.tasks
        for metric in (records.scores(task).metric, *records.scores(task).others)
    ]
    aligned = ("alignment, before", "after") if _aligned(records) else ()
    tasks = (f"{task}: {metric_label(metric)}" for task, metric in metrics)
    header = ("language", "layers", "masked accuracy, before", "after", *aligned, *tasks)
    return markdown_table(header, [_line(row, metrics, _aligned(records)) for row in records.rows])


def _aligned(records: RunRecords) -> bool:
    return any(result.alignment for result in records.languages)


def _line(row: ResultRow, metrics: list[tuple[str, str]], aligned: bool) -> list[str]:
    (result,) = row.results
    cells = [row.language, row.layers, percent(result.masked.primary_initial), percent(result.masked.primary)]
    if aligned:
        alignment = result.alignment
        both = (alignment.top_initial, alignment.top) if alignment else ()
        cells += [percent(each.accuracy) for each in both] or ["", ""]
    for task, metric in metrics:
        scores = result.task_scores.get(task)
        found = scores and (scores.score if metric == scores.metric else scores.others.get(metric))
        cells.append(percent(found.mean) if found else "")
    return cells


def _verdicts(records: RunRecords) -> list[str]:
    if not records.verdicts:
        return []
    rows = [
        (
            name_and_tag(language),
            f"`{verdict.model}` version {verdict.version}",
            "promoted" if verdict.promoted else "not promoted",
            verdict.reason,
        )
        for language, verdict in records.verdicts.items()
    ]
    return [markdown_table(("language", "registered as", "gate", "because"), rows)]
