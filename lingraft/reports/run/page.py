"""The report: one HTML page that opens from disk and needs no network, its records, and the terminal's table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.data.languages import language_name, name_and_tag
from lingraft.errors import MissingExtraError
from lingraft.reports.plotting import Plot
from lingraft.reports.run.classes import ClassTable, class_table, class_tables
from lingraft.reports.run.columns import (
    FlopsUnit,
    Group,
    alignment_groups,
    cost_group,
    count,
    initial_rows_note,
    masked_groups,
    overlap_group,
    percent,
    seconds,
    spread,
)
from lingraft.reports.run.next_steps import mlflow_ui_command, next_steps
from lingraft.reports.run.plots import (
    adaptation_plots,
    cost_plot,
    finetuning_plot,
    layer_styles,
    masked_plot,
    pretraining_plot,
    search_plot,
    task_plot,
    words_plot,
)
from lingraft.reports.run.records import RECORDS_FILE, AdaptedLayers, ResultRow, RunRecords, SampleAnswer
from lingraft.reports.run.summary import summary
from lingraft.reports.run.table import brief_table, notes, table
from lingraft.reports.run.task_columns import baseline_summary, metric_label, task_group
from lingraft.stages.results import LanguageResult, TaskScores

if TYPE_CHECKING:
    import jinja2

__all__ = ["PAGE_FILE", "RunRecords", "brief_table", "table", "template_environment", "write"]

PAGE_FILE = "report.html"


def write(records: RunRecords, out: Path) -> Artifact:
    """Write report.html, one self-contained page, and report.json, the records it was made from.

    Args:
        records: everything that the page shows.
        out: folder of the new artifact.

    Raises:
        ArtifactError: `out` cannot be written.
        MissingExtraError: matplotlib, jinja2 or Babel is not installed.
    """
    page = _page(records)
    recipe = records.recipe
    with artifact.create(out, Kind.REPORT) as draft:
        (draft.folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = {
            "language": records.source.language,
            "aligned_with": records.source.primary,
            "recipe": recipe.model_dump(mode="json") if recipe else {},
            "details": {"languages": records.names},
        }
    return Artifact.load(out, Kind.REPORT)


def template_environment() -> "jinja2.Environment":
    """What the pages' templates are read with: all that is filled in is text, and a name that is not there an error.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError("jinja2", "report") from error
    return jinja2.Environment(
        loader=jinja2.PackageLoader("lingraft"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page(records: RunRecords) -> str:
    templates = template_environment()
    templates.filters |= {
        "percent": percent,
        "count": count,
        "seconds": seconds,
        "spread": spread,
        "basis": baseline_summary,
        "plain": metric_label,
        "language": language_name,
        "tagged": name_and_tag,
    }
    return templates.get_template(PAGE_FILE).render(_context(records))


@dataclass(frozen=True)
class _TaskSection:
    """What the page shows of one task."""

    place: int
    """Among the tasks, from 1."""
    name: str
    scores: TaskScores
    groups: list[Group]
    rows: list[ResultRow]
    plots: list[Plot]
    classes: ClassTable | None
    """Recall per class, where there are classes."""
    confusions: list[tuple[str, TaskScores]]
    """A title and scores for every confusion matrix, the source's first."""


def _task_section(records: RunRecords, task: str) -> _TaskSection:
    return _TaskSection(
        place=records.tasks.index(task) + 1,
        name=task,
        scores=records.scores(task),
        groups=[task_group(records, task)],
        rows=[*records.rows, *records.means_on(task)],
        plots=[task_plot(records, task)] if records.tested_on(task) else [],
        classes=class_table(records, task),
        confusions=_confusions(records, task),
    )


def _confusions(records: RunRecords, task: str) -> list[tuple[str, TaskScores]]:
    source = [(f"{language_name(records.source.language)} (source)", records.source.task_scores.get(task))]
    rows = [
        (
            f"{language_name(result.language)}, {AdaptedLayers.of_result(result).of(result.layers)} layers",
            result.task_scores.get(task),
        )
        for result in records.languages
    ]
    return [(title, scores) for title, scores in source + rows if scores and scores.confusion]


@dataclass(frozen=True)
class _WordsSection:
    """What the page shows of the words of a language."""

    result: LanguageResult
    """Of several, the one over the fewest layers; all of them start from the same rows."""
    layers: str
    note: str
    plots: list[Plot]


def _words_sections(records: RunRecords) -> list[_WordsSection]:
    """One for each language whose words were evaluated or whose rows were aligned."""
    shown = [records.of_language(language)[0] for language in records.names]
    source = records.source.language
    return [
        _WordsSection(
            result,
            AdaptedLayers.of_result(result).of(result.layers),
            initial_rows_note(result, source),
            [words_plot(result, source)] if result.nearest_words else [],
        )
        for result in shown
        if result.nearest_words or result.initial_alignment
    ]


def _number_formats(records: RunRecords) -> str:
    """In which number format the source and the languages were trained; those of one format together."""
    source = records.source.precision
    adapted = {row.results[0].precision for row in records.rows}
    if adapted == {source}:
        return f"{source}, in all trainings"
    if len(adapted) == 1:
        return f"{source} for the source; {adapted.pop()} for all languages"
    trained = {source: ["the source"]}
    for row in records.rows:
        over = f"{row.language} over {row.over.of(records.source.layers)} layers"
        trained.setdefault(row.results[0].precision, []).append(over)
    return "; ".join(f"{number_format} for {', '.join(names)}" for number_format, names in trained.items())


def _context(records: RunRecords) -> dict[str, Any]:
    unit = FlopsUnit.fitting(records)
    return {
        "records": records,
        "source": records.source,
        "names": [language_name(language) for language in records.names],
        "rows": [*records.rows, *records.means],
        "summary": summary(records),
        "never_found": [said for found in class_tables(records) for said in found.never_found],
        "asked": _answers_by_task(records),
        "next_steps": next_steps(records),
        "contents": _contents(records),
        "mlflow_ui_command": mlflow_ui_command,
        "notes": notes(records),
        "number_formats": _number_formats(records),
        "masked_groups": [overlap_group(records), *masked_groups(), *alignment_groups(records)],
        "cost_groups": [cost_group(unit)],
        "tasks": [_task_section(records, task) for task in records.tasks],
        "words": _words_sections(records),
        "unit": unit,
        "plots": _plots(records),
        "version": __version__,
    }


def _answers_by_task(records: RunRecords) -> list[tuple[str, list[SampleAnswer]]]:
    """Questions with their answers, by task."""
    by_task: dict[str, list[SampleAnswer]] = {}
    for answer in records.answers:
        by_task.setdefault(answer.task, []).append(answer)
    return [*by_task.items()]


def _contents(records: RunRecords) -> list[tuple[str, str]]:
    """Ids and titles of the page's sections."""
    tasks = [(f"task-{place}", f"Zero-shot use: {task}") for place, task in enumerate(records.tasks, start=1)]
    sections: list[tuple[object, str, str]] = [
        (True, "results", "Results"),
        (records.answers, "answers", "Questions and answers"),
        (records.verdicts, "gate", "What the gate decided"),
        (True, "next", "What to do next"),
        (True, "method", "What was done"),
        (True, "source", f"The source: {language_name(records.source.language)}"),
        (True, "masked", "Guessing hidden tokens"),
        (_words_sections(records), "words", "What words start as"),
        *((True, *task) for task in tasks or [("task", "Zero-shot use")]),
        (True, "cost", "What it cost"),
        (records.search, "search", "Which depth? The search"),
        (True, "curves", "How learning went"),
        (True, "made", "How the numbers were made"),
        (records.tracked, "runs", "Runs in MLflow"),
        (True, "fingerprints", "Fingerprints"),
        (records.recipe, "recipe", "Recipe"),
    ]
    return [(place, title) for there, place, title in sections if there]


def _plots(records: RunRecords) -> dict[str, list[Plot]]:
    """The page's figures, by section; those of tasks are in sections of their own."""
    source = records.source
    search = records.search
    styles = layer_styles(records)
    return {
        "masked": [masked_plot(records)],
        "cost": [cost_plot(records)],
        "search": [search_plot(search.trials, search.chosen, styles)] if search else [],
        "curves": [pretraining_plot(source), *(finetuning_plot(source, task) for task in source.finetuning_history)],
        "adaptation": [
            plot
            for language in records.names
            for plot in adaptation_plots(language, records.of_language(language), styles)
        ],
    }
