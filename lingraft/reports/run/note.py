"""The report in a few lines of Markdown: the description of a pipeline's run on MLflow's pages."""

from lingraft.data.languages import language_name, name_and_tag
from lingraft.reports.run.classes import class_warnings
from lingraft.reports.run.page import PAGE_FILE
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.summary import summary
from lingraft.stages.results import metric_label
from lingraft.tables import markdown_table, percent

REPORT = "report"
"""Folder of the report among the run's artifacts."""


def run_title(records: RunRecords) -> str:
    """Return a short name for the run, such as "language: German, Turkish"."""
    return f"language: {', '.join(map(language_name, records.names))}"


def run_description(records: RunRecords) -> str:
    """Summarise a run: gains, the gate's verdicts, warnings, and where the whole report is."""
    targets = ", ".join(map(name_and_tag, records.names))
    promoted = sum(verdict.promoted for verdict in records.verdicts.values())
    gate = f"The gate promoted {promoted} of {len(records.verdicts)} languages. " if records.verdicts else ""
    parts = [
        f"**From {name_and_tag(records.source.language)} to {targets}.** {gate}The whole report is the "
        f"artifact `{REPORT}/{PAGE_FILE}` of this run.",
        *(f"**FAILED: {name_and_tag(language)}**: {reason}" for language, reason in records.failed.items()),
        *(f"**WARNING**: {warning}" for warning in class_warnings(records)),
        *(f"{subject} {sentences}" for subject, sentences in summary(records)),
        _scores(records),
        *_verdicts(records),
        "Each stage is a run of its own below this one.",
    ]
    return "\n\n".join(parts)


def headline_metrics(records: RunRecords) -> dict[str, float]:
    """Return the scores of every evaluation, by names that MLflow groups by language and layers."""
    found: dict[str, float] = {}
    for result in records.languages:
        name = f"{result.language} over {result.depth} of {result.layers}/"
        if result.masked:
            found[f"{name}masked_accuracy"] = result.masked.primary
        if result.alignment:
            found[f"{name}alignment"] = result.alignment.top.accuracy
        for task in result.tasks:
            found[f"{name}{task.name}_{task.metric}"] = task.score.mean
            found |= {f"{name}{task.name}_{metric}": scores.mean for metric, scores in task.others.items()}
    return found


def _scores(records: RunRecords) -> str:
    measured, aligned = records.has_masked_scores, any(result.alignment for result in records.languages)
    metrics = [
        (task, metric)
        for task in records.tasks
        for metric in (records.scores(task).metric, *records.scores(task).others)
    ]
    header = ["language", "layers"]
    header += ["masked accuracy, before", "after"] if measured else []
    header += ["alignment, before", "after"] if aligned else []
    header += [f"{task}: {metric_label(metric)}" for task, metric in metrics]
    rows = []
    for row in records.rows:
        (result,) = row.results
        cells = [row.language, row.layers]
        if measured:
            masked = result.masked
            cells += [percent(masked.primary_initial), percent(masked.primary)] if masked else ["", ""]
        if aligned:
            found = result.alignment
            cells += [percent(found.top_initial.accuracy), percent(found.top.accuracy)] if found else ["", ""]
        for task, metric in metrics:
            scores = result.task_scores.get(task)
            by_seed = scores and (scores.score if metric == scores.metric else scores.others.get(metric))
            cells.append(percent(by_seed.mean) if by_seed else "")
        rows.append(cells)
    return markdown_table(header, rows)


def _verdicts(records: RunRecords) -> list[str]:
    rows = [
        (
            name_and_tag(language),
            f"`{verdict.model}` version {verdict.version}",
            "promoted" if verdict.promoted else "not promoted",
            verdict.reason,
        )
        for language, verdict in records.verdicts.items()
    ]
    return [markdown_table(("language", "registered as", "gate", "because"), rows, left=4)] if rows else []
