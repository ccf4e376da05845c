"""Costs of a recipe's systems as an aligned table: FLOPs, and hours at a rate."""

from collections.abc import Sequence

from lingraft.config.recipe import Recipe
from lingraft.model.flops import EXA, counted_otherwise
from lingraft.reports.cost.bill import Bill, OmittedSystem, searched
from lingraft.tables import counted, text_table

_SMALL = 0.1
"""Number below which two decimals say too little."""


def as_text(
    recipe: Recipe, bills: Sequence[Bill], omitted: Sequence[OmittedSystem], languages: int, tflops: float
) -> str:
    """Return FLOPs and hours of every system and step, for one language and for all.

    Args:
        recipe: recipe of the bills.
        bills: systems with their runs.
        omitted: systems that the recipe has no settings for.
        languages: number of target languages.
        tflops: rate of training, in TFLOP/s.
    """

    def amounts(flops: float) -> tuple[str, str]:
        return _amount(flops / EXA), _amount(flops / (tflops * 1e12) / 3600)

    rows = [["system", "step", "layers", "heads", "equation", "updates", "EFLOPs", "hours"]]
    for bill in bills:
        for run in bill.runs:
            system = bill.system if run is bill.runs[0] else ""
            name = f"{run.name}{', each language' * run.is_per_language}"
            shape = [str(run.step.layers), str(len(run.step.heads)), run.formula, f"{run.updates:,}"]
            rows.append([system, name, *shape, *amounts(run.flops)])
        for count in sorted({1, languages}):
            rows.append(["", f"total, {counted(count, 'language')}", "", "", "", "", *amounts(bill.flops(count))])
    notes = [f"Equations of the paper's appendix A.1; hours at {tflops:g} TFLOP/s."]
    if note := counted_otherwise(recipe.encoder):
        notes.append(note)
    if search := searched(recipe):
        most = _amount(search.trials * search.flops / EXA)
        notes.append(f"Not counted: the depth search, {search.trials} trials, at most {most} EFLOPs together.")
    notes += [f"Left out: {absent.system} at depth {absent.depth}: {absent.reason}" for absent in omitted]
    return "\n".join([*text_table(rows, left=2), "", *notes])


def _amount(number: float) -> str:
    """Return a number with two decimals, or three figures of what is too small for that."""
    return f"{number:.3g}" if 0 < number < _SMALL else f"{number:,.2f}"
