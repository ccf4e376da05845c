"""The paper's own figures, computed again by the code that computes ours, from the tables that it prints."""

import math
from statistics import mean

from lingraft.config.systems import System
from lingraft.reports.paper.cells import ReportTable, TableRow
from lingraft.reports.paper.cost_tables import format_ratio, format_share, published_ratios
from lingraft.reports.paper.efficiency import over_cells, over_tasks, retained, speed_up
from lingraft.reports.paper.published import DAYS, RETAINED_PERCENT, SCORES, SPEED_UPS

_MINIS = (System.MINIJOINT, System.MINIPOST)
_MAIN = [name for name, task in SCORES.items() if not task.appendix]


def averages_table() -> ReportTable:
    """Every average of tables 2, 3, A1 and A2: as printed, and unrounded from the cells beside it."""
    rows = []
    for what, tables in (("score, %", SCORES), ("V100-days", DAYS)):
        for task in tables.values():
            for system, printed in task.averages.items():
                found = mean(cell for cell in task.rows[system] if math.isfinite(cell))
                cells = (task.title, what, f"{printed:.1f}", f"{found:.4f}", f"{found - printed:+.4f}")
                rows.append(TableRow(system, cells))
    head = ("system", "task", "average of", "printed", "from its cells", "difference")
    notes = ("Cells are rounded to 0.1, so an average may be off by 0.05. Languages of infinite cost are left out.",)
    return ReportTable("", "Averages of the paper's tables 2, 3, A1 and A2, computed again", head, tuple(rows), notes)


def ratios_table() -> ReportTable:
    """Speed-ups and shares retained: as the paper says, and from its rounded cells."""
    rows = []
    for system in _MINIS:
        days = published_ratios(DAYS, system, speed_up)
        scores = published_ratios(SCORES, system, retained)
        main_days, main_scores = ([found[name] for name in _MAIN] for found in (days, scores))
        rounded = mean(SCORES[name].averages[system] / SCORES[name].averages[System.BL_BASE] for name in _MAIN)
        said = f"{SPEED_UPS[system]}×"
        figures = [
            *((f"speed-up on {DAYS[name].title}", "–", _format_ratio(days[name].mean)) for name in DAYS),
            ("speed-up, mean of tasks", said, _format_ratio(over_tasks(main_days))),
            ("speed-up, mean of tasks with XQuAD", said, _format_ratio(over_tasks(days.values()))),
            ("speed-up, mean of all cells with XQuAD", said, _format_ratio(over_cells(days.values()))),
            ("retained, mean of tasks", f"{RETAINED_PERCENT[system]}%", _format_share(over_tasks(main_scores))),
            ("retained, from printed averages", f"{RETAINED_PERCENT[system]}%", format_share(rounded)),
        ]
        rows += [TableRow(system, figure) for figure in figures]
    head = ("system", "figure", "the paper says", "from its rounded cells")
    notes = (
        "Tasks are XNLI, MLQA and PAWS-X where XQuAD is not named. The paper computed its figures before rounding, so "
        "they differ a little; its 2.3× and 1.6× are nearest to the mean of all cells.",
    )
    return ReportTable("", "The paper's speed-ups and shares retained, computed again", head, tuple(rows), notes)


def _format_ratio(ratio: float | None) -> str:
    return "–" if ratio is None else format_ratio(ratio)


def _format_share(ratio: float | None) -> str:
    return "–" if ratio is None else format_share(ratio)
