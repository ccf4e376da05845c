"""The report: one HTML page that opens from disk and needs no network, its records, and the terminal's table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft import __version__, artifact
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import MissingExtraError
from lingraft.report_canvas import Plot
from lingraft.report_columns import (
    FlopsUnit,
    cost_group,
    count,
    masked_groups,
    overlap_group,
    percent,
    seconds,
    spread,
    task_group,
)
from lingraft.report_plots import (
    adaptation_plots,
    cost_plot,
    depth_styles,
    finetuning_plot,
    masked_plot,
    pretraining_plot,
    search_plot,
    task_plot,
)
from lingraft.report_records import RECORDS_FILE, Records
from lingraft.report_summary import summary
from lingraft.report_table import notes, table, task_basis
from lingraft.results import LanguageResult, SearchResult, SourceResult, TaskScores

__all__ = ["PAGE_FILE", "Records", "table", "write"]

PAGE_FILE = "report.html"


def write(
    source: SourceResult,
    languages: Sequence[LanguageResult],
    search: SearchResult | None,
    out: Path,
    recipe: Recipe | None = None,
) -> Artifact:
    """Write report.html, one self-contained page, and report.json, the records it was made from.

    Args:
        source: the evaluation of the source.
        languages: evaluations of the languages, in the order to show; standard adaptation is compared where present.
        search: the depth search, if there was one.
        out: folder of the new artifact.
        recipe: shown at the end of the page, if given.

    Raises:
        ArtifactError: no language, two different embeddings for one language and depth, or `out` cannot be written.
        AlignmentError: a language or the search belongs to another primary than the source.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    records = Records.of(source, languages, search, recipe)
    page = _page(records)
    with artifact.create(out, Kind.REPORT) as draft:
        (draft.folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = {
            "language": source.language,
            "aligned_with": source.primary,
            "recipe": recipe.model_dump(mode="json") if recipe else {},
            "details": {"languages": records.names},
        }
    return Artifact.load(out, Kind.REPORT)


def _page(records: Records) -> str:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError("jinja2", "report") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lingraft"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "count": count,
        "seconds": seconds,
        "spread": spread,
        "task_basis": task_basis,
    }
    return environment.get_template(PAGE_FILE).render(_context(records))


def _context(records: Records) -> dict[str, Any]:
    source, task, unit = records.source, task_group(records), FlopsUnit.fitting(records)
    return {
        "records": records,
        "source": source,
        "names": records.names,
        "rows": [*records.rows, *records.means],
        "summary": summary(records),
        "notes": notes(records),
        "masked_groups": [overlap_group(records), *masked_groups()],
        "task_groups": [task] if task else [],
        "cost_groups": [cost_group(unit)],
        "unit": unit,
        "plots": _plots(records),
        "confusions": _confusions(records),
        "version": __version__,
    }


def _plots(records: Records) -> dict[str, list[Plot]]:
    """The page's figures, by section."""
    source, styles = records.source, depth_styles(records)
    curves = [pretraining_plot(source)]
    if source.task and source.finetuning_history:
        curves.append(finetuning_plot(source, source.task.name))
    search, tested = records.search, any(row.task for row in records.languages)
    return {
        "masked": [masked_plot(records)],
        "task": [task_plot(records, source.task.accuracy)] if source.task and tested else [],
        "cost": [cost_plot(records)],
        "search": [search_plot(search.trials, search.chosen, styles)] if search else [],
        "curves": curves,
        "adaptation": [
            plot
            for language in records.names
            for plot in adaptation_plots(language, records.of_language(language), styles)
        ],
    }


def _confusions(records: Records) -> list[tuple[str, TaskScores]]:
    """A title and scores for every confusion matrix, the source's first."""
    source = [(f"{records.source.language} (source)", records.source.task)]
    rows = [(f"{r.language}, {r.depth} of {r.layers} layers", r.task) for r in records.languages]
    return [(title, task) for title, task in source + rows if task]
