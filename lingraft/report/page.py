"""The report: one HTML page that opens from disk and needs no network, its records, and the terminal's table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lingraft import __version__, artifact
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import MissingExtraError
from lingraft.report.canvas import Plot
from lingraft.report.columns import (
    FlopsUnit,
    Group,
    cost_group,
    count,
    masked_groups,
    overlap_group,
    percent,
    seconds,
    spread,
)
from lingraft.report.plots import (
    adaptation_plots,
    cost_plot,
    finetuning_plot,
    layer_styles,
    masked_plot,
    pretraining_plot,
    search_plot,
    task_plot,
)
from lingraft.report.records import RECORDS_FILE, Layers, Records, Row
from lingraft.report.summary import summary
from lingraft.report.table import notes, table
from lingraft.report.tasks import basis, plain, task_group
from lingraft.results import LanguageResult, SearchResult, SourceResult, TaskScores

if TYPE_CHECKING:
    import jinja2

__all__ = ["PAGE_FILE", "Records", "environment", "table", "write"]

PAGE_FILE = "report.html"


def write(
    source: SourceResult,
    languages: Sequence[LanguageResult],
    search: SearchResult | None,
    out: Path,
    recipe: Recipe | None = None,
    failed: Mapping[str, str] = MappingProxyType({}),
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Artifact:
    """Write report.html, one self-contained page, and report.json, the records it was made from.

    Args:
        source: the evaluation of the source.
        languages: evaluations of the languages, in the order to show; standard adaptation is compared where present.
        search: the depth search, if there was one.
        failed: why languages have no evaluation.
        refused: why the gate did not promote languages that have one.
        out: folder of the new artifact.
        recipe: shown at the end of the page, if given.

    Raises:
        ArtifactError: no language, two embeddings for one language and mini-model, or `out` cannot be written.
        AlignmentError: a language or the search belongs to another primary than the source.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    records = Records.of(source, languages, search, recipe, failed, refused)
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


def environment() -> "jinja2.Environment":
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


def _page(records: Records) -> str:
    templates = environment()
    templates.filters |= {
        "percent": percent,
        "count": count,
        "seconds": seconds,
        "spread": spread,
        "basis": basis,
        "plain": plain,
    }
    return templates.get_template(PAGE_FILE).render(_context(records))


@dataclass(frozen=True)
class _TaskSection:
    """What the page shows of one task."""

    name: str
    scores: TaskScores
    groups: list[Group]
    rows: list[Row]
    plots: list[Plot]
    confusions: list[tuple[str, TaskScores]]
    """A title and scores for every confusion matrix, the source's first."""


def _task_section(records: Records, task: str) -> _TaskSection:
    return _TaskSection(
        name=task,
        scores=records.scores(task),
        groups=[task_group(records, task)],
        rows=[*records.rows, *records.means_on(task)],
        plots=[task_plot(records, task)] if records.tested(task) else [],
        confusions=_confusions(records, task),
    )


def _confusions(records: Records, task: str) -> list[tuple[str, TaskScores]]:
    source = [(f"{records.source.language} (source)", records.source.task_scores.get(task))]
    rows = [
        (f"{result.language}, {Layers.under(result).of(result.layers)} layers", result.task_scores.get(task))
        for result in records.languages
    ]
    return [(title, scores) for title, scores in source + rows if scores and scores.confusion]


def _context(records: Records) -> dict[str, Any]:
    unit = FlopsUnit.fitting(records)
    return {
        "records": records,
        "source": records.source,
        "names": records.names,
        "rows": [*records.rows, *records.means],
        "summary": summary(records),
        "notes": notes(records),
        "masked_groups": [overlap_group(records), *masked_groups()],
        "cost_groups": [cost_group(unit)],
        "tasks": [_task_section(records, task) for task in records.tasks],
        "unit": unit,
        "plots": _plots(records),
        "version": __version__,
    }


def _plots(records: Records) -> dict[str, list[Plot]]:
    """The page's figures, by section; those of tasks are in sections of their own."""
    source, search, styles = records.source, records.search, layer_styles(records)
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
