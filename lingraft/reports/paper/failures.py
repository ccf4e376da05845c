"""What failed, and why: the one place of a report where an error stands in full."""

from collections.abc import Iterable
from typing import NamedTuple

from lingraft.config.systems import System
from lingraft.reports.paper.cells import ReportTable, TableRow, missing_mark
from lingraft.reports.paper.results_table import SYSTEM_ORDER, MissingValue, ResultsTable


class _FailedCell(NamedTuple):
    """A cell that failed, of a language or of the source."""

    value: MissingValue
    system: System
    language: str


def failures_table(results: ResultsTable) -> list[ReportTable]:
    """A row per reason, and under the table the reasons in full; nothing where nothing failed."""
    by_number: dict[int, list[_FailedCell]] = {}
    for failure in _failures(results):
        by_number.setdefault(results.reasons.number(failure.value), []).append(failure)
    rows = [
        TableRow(missing_mark(number), (str(len(failures)), _systems(failures), _languages(failures)))
        for number, failures in sorted(by_number.items())
    ]
    notes = [f"{missing_mark(number)}: {_full(failures[0].value)}" for number, failures in sorted(by_number.items())]
    head = ("hole", "cells", "systems", "languages")
    return [ReportTable("", "Cells that failed, by reason", head, tuple(rows), tuple(notes))] if rows else []


def _failures(results: ResultsTable) -> Iterable[_FailedCell]:
    records = results.records
    for cell in records.cells:
        if cell.failed is not None:
            yield _FailedCell(MissingValue.failed(cell.failed), cell.system, cell.language)
    for of_source in records.source_cells:
        if of_source.failed is not None:
            yield _FailedCell(MissingValue.failed(of_source.failed), of_source.system, records.source)


def _systems(failures: Iterable[_FailedCell]) -> str:
    found = {failure.system for failure in failures}
    return ", ".join(system for system in SYSTEM_ORDER if system in found)


def _languages(failures: Iterable[_FailedCell]) -> str:
    return ", ".join(dict.fromkeys(failure.language for failure in failures))


def _full(hole: MissingValue) -> str:
    """On one line, so that Markdown keeps it in one paragraph."""
    return f"{' '.join(hole.reason.split())}."
