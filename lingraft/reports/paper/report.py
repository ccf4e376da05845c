"""The paper's comparison from our own runs: Markdown, one HTML page, PNG figures, and their records."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.reports.paper.cells import ReportTable
from lingraft.reports.paper.records import RECORDS_FILE, PaperRecords
from lingraft.reports.paper.results_table import ResultsTable
from lingraft.reports.paper.sections import ReportSection, sections_of
from lingraft.reports.paper.summary import basis, summary
from lingraft.reports.run.page import template_environment

if TYPE_CHECKING:
    import jinja2

__all__ = ["MARKDOWN_FILE", "PAGE_FILE", "PaperRecords", "markdown", "pictures", "table_lines", "write"]

PAGE_FILE = "paper.html"
MARKDOWN_FILE = "paper.md"


def write(records: PaperRecords, out: Path) -> Artifact:
    """Write the page, the Markdown, a PNG file per figure, and records.json.

    Args:
        records: of all runs, failed ones too.
        out: folder of the new artifact.

    Raises:
        ArtifactError: the records do not fit each other, or `out` cannot be written.
        CurveError: a curve that is empty or not sorted.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    template = template_environment().get_template(PAGE_FILE)  # where it cannot be had, nothing is drawn in vain
    results = ResultsTable(records)
    sections = sections_of(results)
    drawn = _pictures(sections)
    page = _page(template, results, sections, drawn)
    text = _markdown(results, sections)
    with artifact.create(out, Kind.REPORT) as draft:
        for file, png in drawn.items():
            (draft.folder / f"{file}.png").write_bytes(png)
        (draft.folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (draft.folder / MARKDOWN_FILE).write_text(text, encoding="utf-8")
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = {"language": records.source, "details": {"of": "paper", "title": records.title}}
    return Artifact.load(out, Kind.REPORT)


def pictures(records: PaperRecords) -> dict[str, bytes]:
    """All figures as PNG, by file without its ending: those that `markdown` names.

    Raises:
        ArtifactError: the records do not fit each other.
        CurveError: a curve that is empty or not sorted.
        MissingExtraError: matplotlib is not installed.
    """
    return _pictures(sections_of(ResultsTable(records)))


def _pictures(sections: Sequence[ReportSection]) -> dict[str, bytes]:
    return {drawing.file: drawing.png() for section in sections for drawing in section.drawings}


def markdown(records: PaperRecords) -> str:
    """All tables as Markdown; its figures are the files that `write` puts beside it.

    Raises:
        ArtifactError: the records do not fit each other.
        CurveError: a curve that is empty or not sorted.
    """
    results = ResultsTable(records)
    return _markdown(results, sections_of(results))


def _markdown(results: ResultsTable, sections: Sequence[ReportSection]) -> str:
    lines = [f"# {results.records.title}", "", *(f"- {line}" for line in summary(results)), ""]
    lines += [paragraph for line in basis(results) for paragraph in (line, "")]
    for section in sections:
        lines += [f"## {section.title}", "", section.prose, ""]
        for table in section.tables:
            lines += table_lines(table)
        for drawing in section.drawings:
            lines += [f"![{drawing.alt}]({drawing.file}.png)", "", f"**{drawing.heading}.** {drawing.caption}", ""]
    return "\n".join([*lines, f"Made by lingraft {__version__} from {RECORDS_FILE}."]) + "\n"


def table_lines(table: ReportTable) -> list[str]:
    """A table in Markdown, with its caption and notes."""
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    rows = [table.head, rule, *((f"*{row.label}*" if row.tone else row.label, *row.cells) for row in table.rows)]
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    notes = [line for note in table.notes for line in (note, "")]
    return [f"**{table.caption}**", "", *body, "", *notes]


def _page(
    template: "jinja2.Template", results: ResultsTable, sections: Sequence[ReportSection], drawn: dict[str, bytes]
) -> str:
    return template.render(
        records=results.records,
        summary=summary(results),
        basis=basis(results),
        sections=sections,
        pictures={file: base64.b64encode(png).decode() for file, png in drawn.items()},
        version=__version__,
    )
