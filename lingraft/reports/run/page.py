"""The report: one HTML page that opens from disk and needs no network, and its records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.languages import language_name, name_and_tag
from lingraft.reports.pages import render_page
from lingraft.reports.run.classes import class_evaluations, class_table, class_warnings
from lingraft.reports.run.columns import (
    FlopsUnit,
    alignment_groups,
    baseline_summary,
    cost_group,
    count,
    initial_rows_note,
    masked_groups,
    overlap_group,
    seconds,
    spread,
    task_group,
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
from lingraft.reports.run.records import RECORDS_FILE, AdaptedLayers, RunRecords, SampleAnswer
from lingraft.reports.run.summary import summary
from lingraft.reports.run.table import notes
from lingraft.stages.results import metric_label
from lingraft.tables import percent

PAGE_FILE = "report.html"


def write(records: RunRecords, out: Path) -> Artifact:
    """Write report.html, one self-contained page, and report.json, the records it was made from, as a new artifact.

    Raises:
        ArtifactError: `out` cannot be written.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    filters: dict[str, Callable[..., Any]] = {
        "percent": percent,
        "count": count,
        "seconds": seconds,
        "spread": spread,
        "basis": baseline_summary,
        "plain": metric_label,
        "language": language_name,
        "tagged": name_and_tag,
    }
    page = render_page("lingraft.reports.run", PAGE_FILE, _context(records), filters)
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


def _context(records: RunRecords) -> dict[str, Any]:
    source = records.source
    search = records.search
    unit = FlopsUnit.fitting(records)
    styles = layer_styles(records)
    answers: dict[str, list[SampleAnswer]] = {}
    for answer in records.answers:
        answers.setdefault(answer.task, []).append(answer)
    words = [_words_section(records, language) for language in records.names]
    words = [section for section in words if section["result"].nearest_words or section["result"].initial_alignment]
    # What was imported has no curve.
    curves = [pretraining_plot(source)] if source.pretraining_history else []
    curves += [
        finetuning_plot(source, task) for task, seeds in source.finetuning_history.items() if any(seeds.values())
    ]
    adaptation = [
        plot for language in records.names for plot in adaptation_plots(language, records.of_language(language), styles)
    ]
    return {
        "records": records,
        "source": source,
        "names": [language_name(language) for language in records.names],
        "rows": [*records.rows, *records.means],
        "summary": summary(records),
        "never_found": class_warnings(records),
        "asked": list(answers.items()),
        "next_steps": next_steps(records),
        "contents": _contents(records, has_words=bool(words)),
        "mlflow_ui_command": mlflow_ui_command,
        "notes": notes(records),
        "number_formats": number_formats(records),
        "masked_groups": [overlap_group(records), *masked_groups(records), *alignment_groups(records)],
        "cost_groups": [cost_group(unit)],
        "tasks": [_task_section(records, task, place) for place, task in enumerate(records.tasks, start=1)],
        "words": words,
        "unit": unit,
        "plots": {
            "masked": [masked_plot(records)] if records.has_masked_scores else [],
            "cost": [cost_plot(records)],
            "search": [search_plot(search, styles)] if search else [],
            "curves": curves,
            "adaptation": adaptation,
        },
        "version": __version__,
    }


def _task_section(records: RunRecords, task: str, place: int) -> dict[str, Any]:
    """Return the contents of the section on one task, which has a number among the tasks, from 1."""
    return {
        "place": place,
        "name": task,
        "scores": records.scores(task),
        "groups": [task_group(records, task)],
        "rows": [*records.rows, *records.means_on(task)],
        "plots": [task_plot(records, task)] if records.tested_on(task) else [],
        "classes": class_table(records, task),
        "confusions": class_evaluations(records, task),
    }


def _words_section(records: RunRecords, language: str) -> dict[str, Any]:
    """Return the contents of the section on the words of a language.

    They are of its result over the fewest layers; all results of a language start from the same rows.
    """
    result = records.of_language(language)[0]
    source = records.source.language
    return {
        "result": result,
        "layers": AdaptedLayers.of_result(result).of(result.layers),
        "note": initial_rows_note(result, source),
        "plots": [words_plot(result, source)] if result.nearest_words else [],
    }


def number_formats(records: RunRecords) -> str:
    """Say in which number format the source and the languages were trained; those of one format together."""
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


def _contents(records: RunRecords, has_words: bool) -> list[tuple[str, str]]:
    """Return ids and titles of the page's sections."""
    tasks = [(f"task-{place}", f"Zero-shot use: {task}") for place, task in enumerate(records.tasks, start=1)]
    sections: list[tuple[object, str, str]] = [
        (True, "results", "Results"),
        (records.answers, "answers", "Questions and answers"),
        (records.verdicts, "gate", "What the gate decided"),
        (True, "next", "What to do next"),
        (True, "method", "What was done"),
        (True, "source", f"The source: {language_name(records.source.language)}"),
        (True, "masked", "Guessing hidden tokens"),
        (has_words, "words", "What words start as"),
        *((True, place, title) for place, title in tasks or [("task", "Zero-shot use")]),
        (True, "cost", "What it cost"),
        (records.search, "search", "Which depth? The search"),
        (True, "curves", "How learning went"),
        (True, "made", "How the numbers were made"),
        (records.tracked, "runs", "Runs in MLflow"),
        (True, "fingerprints", "Fingerprints"),
        (records.recipe, "recipe", "Recipe"),
    ]
    return [(place, title) for there, place, title in sections if there]
