"""The paper's comparison from our own runs: Markdown, one HTML page, PNG figures, and their records."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.systems import System
from lingraft.reports.pages import render_page
from lingraft.reports.paper.cost_tables import (
    equal_table,
    retained_table,
    speed_up_table,
    spent_table,
    target_time_by_depth,
    target_time_table,
)
from lingraft.reports.paper.curves import depth_curves, language_curves, system_curves
from lingraft.reports.paper.figures import depth_drawings, speed_up_drawing
from lingraft.reports.paper.records import RECORDS_FILE, PaperRecords
from lingraft.reports.paper.report_table import ReportTable
from lingraft.reports.paper.results_table import COMPUTE, MEASURED_SECONDS, ResultsTable, TargetRule
from lingraft.reports.paper.score_tables import (
    failures_table,
    final_by_depth,
    final_table,
    languages_table,
    pretraining_table,
    source_table,
)
from lingraft.reports.paper.summary import basis, summary
from lingraft.reports.plotting import Drawing

PAGE_FILE = "paper.html"
MARKDOWN_FILE = "paper.md"


@dataclass(frozen=True)
class ReportSection:
    """A part of the report."""

    title: str
    prose: str
    tables: Sequence[ReportTable]
    drawings: Sequence[Drawing] = ()


def write(records: PaperRecords, out: Path) -> Artifact:
    """Write the page, the Markdown, a PNG file per figure, and records.json as a new artifact.

    Raises:
        ArtifactError: the records have a cell twice, or `out` cannot be written.
        CurveError: a curve that is empty or not sorted.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    results = ResultsTable(records)
    sections = report_sections(results)
    drawn = {drawing.file: drawing.png() for section in sections for drawing in section.drawings}
    context = {
        "records": records,
        "summary": summary(results),
        "basis": basis(results),
        "sections": sections,
        "pictures": drawn,
        "version": __version__,
    }
    page = render_page("lingraft.reports.paper", PAGE_FILE, context)
    with artifact.create(out, Kind.REPORT) as draft:
        for file, png in drawn.items():
            (draft.folder / f"{file}.png").write_bytes(png)
        (draft.folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (draft.folder / MARKDOWN_FILE).write_text(_markdown(results, sections), encoding="utf-8")
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = {"language": records.source, "details": {"of": "paper", "title": records.title}}
    return Artifact.load(out, Kind.REPORT)


def pictures(records: PaperRecords, wanted: Container[str]) -> dict[str, bytes]:
    """Return figures as PNG, by file without its ending, of those files that are wanted."""
    drawings = (drawing for section in report_sections(ResultsTable(records)) for drawing in section.drawings)
    return {drawing.file: drawing.png() for drawing in drawings if drawing.file in wanted}


def markdown(records: PaperRecords) -> str:
    """Return all tables as Markdown; its figures are the files that `write` puts beside it."""
    results = ResultsTable(records)
    return _markdown(results, report_sections(results))


def _markdown(results: ResultsTable, sections: Sequence[ReportSection]) -> str:
    lines = [f"# {results.records.title}", "", *(f"- {line}" for line in summary(results)), ""]
    lines += [paragraph for line in basis(results) for paragraph in (line, "")]
    for section in sections:
        lines += [f"## {section.title}", "", section.prose, ""]
        lines += [line for table in section.tables for line in table.markdown()]
        for drawing in section.drawings:
            lines += [f"![{drawing.alt}]({drawing.file}.png)", "", f"**{drawing.heading}.** {drawing.caption}", ""]
    return "\n".join([*lines, f"Made by lingraft {__version__} from {RECORDS_FILE}."]) + "\n"


def report_sections(results: ResultsTable) -> list[ReportSection]:
    """Return all sections that the records have something for, in their order."""
    tasks, main = results.records.tasks, results.main_tasks
    by_depth = [system for system in results.records.systems if results.depths(system)]
    # The lower bound, BL_SMALL, is in table A1 and not in table 3.
    compared = [variant for variant in results.variants if variant.system is not System.BL_SMALL]
    sections = [
        ReportSection("Languages", "What each language's embeddings were trained on.", languages_table(results)),
        ReportSection(
            "Scores at the end of training",
            "A language's embeddings are learned over the whole model (BL_BASE), over a model that is small throughout "
            "(BL_SMALL) or over an aligned mini-model (MINIPOST, MINIJOINT). With them, a model that learned the task "
            "in the source language only is tested in that language.",
            [*(final_table(results, task) for task in main), *retained_table(results), spent_table(results)],
        ),
        ReportSection(
            "Compute to near-maximal performance",
            "When a system first reaches 95% of the score that BL_BASE ends with, interpolated between checkpoints.",
            [
                *speed_up_table(results),
                *(target_time_table(results, task, "Table 3", compared) for task in main),
            ],
            [*speed_up_drawing(results), *system_curves(results)],
        ),
        ReportSection(
            "At equal cost, by the clock, and over the trivial baseline",
            "Seconds are those of training where it ran. Where a trivial answer scores b, reaching 95% of BL_BASE says "
            "little; b + 95% of what BL_BASE has over b asks for more.",
            [
                *(equal_table(results, task, measure) for task in main for measure in (COMPUTE, MEASURED_SECONDS)),
                *(target_time_table(results, task, "Table 3, measured", compared, MEASURED_SECONDS) for task in main),
                *(
                    target_time_table(results, task, "Table 3, over b", compared, goal=TargetRule.OVER_BASELINE)
                    for task in main
                ),
            ],
        ),
        ReportSection(
            "How deep the mini-model should be",
            "A shallow mini-model is cheaper; a deeper one may end higher. The best depth depends on the language.",
            [
                table
                for system in by_depth
                for table in (*target_time_by_depth(results, system), *final_by_depth(results, system))
            ],
            [
                drawing
                for system in by_depth
                for drawing in (*depth_drawings(results, system), *depth_curves(results, system))
            ],
        ),
        ReportSection("The source language", "What a system costs the source language itself.", source_table(results)),
        ReportSection(
            "Another pretraining",
            "How far a score moves if the model is pretrained again with another seed.",
            pretraining_table(results),
        ),
        ReportSection(
            "All scores, costs and intervals",
            "All tasks, those of the appendix too, and all systems.",
            [
                *(final_table(results, task, spread=True) for task in tasks),
                *(target_time_table(results, task, "Table A1", results.variants) for task in tasks),
                *(target_time_table(results, task, "Table A4", results.variants, intervals=True) for task in tasks),
                *(table for system in by_depth for table in target_time_by_depth(results, system, intervals=True)),
            ],
            [drawing for task in tasks for drawing in language_curves(results, task)],
        ),
        ReportSection("What failed, and why", "By the numbers in the tables above.", failures_table(results)),
    ]
    return [section for section in sections if section.tables]
