"""Page on progressive adaptation against every fixed depth: tables and a picture."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from benchmarks.progressive.arms import DEV_LOSS, FIXED
from lingraft.reports.plotting import COLOURS
from lingraft.tables import markdown_table

_TERA = 1e12
_FIXED_LINES, _PROGRESSIVE_LINES = ("blue", "green", "sky", "purple", "grey"), {FIXED: "orange", DEV_LOSS: "red"}


def page(found: dict[str, Any], picture: str) -> str:
    """A page of Markdown: each language's table, then what progressive adaptation gains on every fixed depth.

    Args:
        found: the results, as they are kept in JSON.
        picture: name of the file with the learning curves, beside the page.
    """
    primary = found["primary"]
    parts = [
        "# Progressive depth",
        f"`{found['command']}` on a {found['machine']['device']}, cores: {found['machine']['cores']}; commit "
        f"{found['machine']['commit']}. The primary has "
        f"{primary['layers']} layers of width {primary['width']} with MLM heads at {primary['heads']}, and was "
        f"pretrained for {primary['steps']:,} updates ({primary['tokens'] / 1e6:.1f} M tokens){_known(primary)}. A "
        "language is learned "
        f"for the FLOPs of {found['steps']:,} updates over all layers, by equation A3, whatever the depths; judged is "
        "the masked accuracy (15%) of the primary with the rows swapped in, on test text. Seeds "
        f"{', '.join(map(str, found['seeds']))} decide rows, order of text and masks; means ± standard deviations. "
        "Looks at the dev loss are forward passes of the whole primary beside these FLOPs, in a column of their own; "
        "seconds leave them out.",
        _headline(found),
        *(f"## {language}\n\n{_table(of(found, language))}" for language in languages(found)),
        "## Gained on every fixed depth\n\nMasked accuracy in points, progressive less fixed, paired by seed.\n\n"
        + _gains(found),
        f"![Masked accuracy over FLOPs, by language]({picture})",
        "A line a seed; along the way a sample of the test text is judged, so that ends lie beside the table's scores.",
    ]
    return "\n\n".join(parts) + "\n"


def _headline(found: dict[str, Any]) -> str:
    """Say how much each progressive arm scores over the fixed depth that is best in a language."""
    told = [f"{arm.removeprefix('progressive, ')} {_over_best(found, arm)}" for arm in (FIXED, DEV_LOSS)]
    return (
        "**Masked accuracy in points over the fixed depth that came out best in each language: "
        f"{'; '.join(told)}.** No fixed depth is known to be the best before all are tried."
    )


def _over_best(found: dict[str, Any], arm: str) -> str:
    told = []
    for language in languages(found):
        by_arm = of(found, language)
        best = max(_fixed(by_arm), key=lambda other: mean(record["accuracy"] for record in by_arm[other]))
        told.append(f"{language} {spread(gains(by_arm, arm, best), signed=True)}")
    return ", ".join(told)


def _known(primary: dict[str, Any]) -> str:
    if primary["known"] is None:
        return ""
    told = ", ".join(f"{accuracy:.1%} at depth {depth}" for depth, accuracy in primary["known"].items())
    return f", and finds masked tokens of its own language: {told}"


def languages(found: dict[str, Any]) -> list[str]:
    """Return the languages in the order in which they were learned."""
    return [*dict.fromkeys(record["language"] for record in found["records"])]


def of(found: dict[str, Any], language: str) -> dict[str, list[dict[str, Any]]]:
    """Return a language's records by arm, each with all seeds."""
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for record in found["records"]:
        if record["language"] == language:
            by_arm.setdefault(record["arm"], []).append(record)
    return by_arm


def gains(by_arm: dict[str, list[dict[str, Any]]], arm: str, fixed: str) -> list[float]:
    """Return by how much an arm scores over a fixed depth, by seed."""
    theirs = {record["seed"]: record["accuracy"] for record in by_arm[fixed]}
    return [record["accuracy"] - theirs[record["seed"]] for record in by_arm[arm]]


def _table(by_arm: dict[str, list[dict[str, Any]]]) -> str:
    head = ["arm", "updates by depth", "TFLOP", "looks, TFLOP", "s", "before", "after"]
    best = max(by_arm, key=lambda arm: mean(record["accuracy"] for record in by_arm[arm]))
    rows = []
    for arm, records in by_arm.items():
        scored = spread([record["accuracy"] for record in records]) + "%"
        rows.append(
            [
                arm,
                _updates(records),
                f"{mean(record['flops'] for record in records) / _TERA:.3g}",
                f"{mean(record['looks_flops'] for record in records) / _TERA:.2g}",
                f"{mean(record['elapsed_s'] for record in records):.0f}",
                f"{mean(record['initial'] for record in records):.1%}",
                f"**{scored}**" if arm == best else scored,
            ]
        )
    return markdown_table(head, rows, left=2)


def _updates(records: Sequence[dict[str, Any]]) -> str:
    """Return the updates of each depth, of every seed where seeds differ."""
    told = dict.fromkeys(", ".join(f"{one['depth']}: {one['steps']:,}" for one in each["phases"]) for each in records)
    return "; ".join(told)


def _gains(found: dict[str, Any]) -> str:
    rows = [*_gain_rows(found)]
    fixed = _fixed(of(found, languages(found)[0]))
    return markdown_table(["language", "arm", *fixed], rows, left=2)


def _gain_rows(found: dict[str, Any]) -> Iterator[list[str]]:
    for language in languages(found):
        by_arm = of(found, language)
        for arm in (FIXED, DEV_LOSS):
            yield [language, arm, *(spread(gains(by_arm, arm, other), signed=True) for other in _fixed(by_arm))]


def _fixed(by_arm: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Arms that keep to one depth."""
    return [arm for arm in by_arm if arm not in (FIXED, DEV_LOSS)]


def spread(values: Sequence[float], signed: bool = False) -> str:
    """Mean ± sample standard deviation, in percent or points; one value has no deviation."""
    middle = f"{100 * mean(values):{'+' if signed else ''}.2f}"
    return f"{middle} ± {100 * stdev(values):.2f}" if len(values) > 1 else middle


def draw(found: dict[str, Any]) -> Figure:
    """Draw the learning curves: one line an arm and seed, progressive ones thicker."""
    names = languages(found)
    figure = Figure(figsize=(5.2 * len(names), 4.4), layout="constrained")
    for axes, language in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        colours = itertools.cycle(_FIXED_LINES)
        for arm, records in _in_order(of(found, language)):
            colour = _PROGRESSIVE_LINES.get(arm) or next(colours)
            for number, record in enumerate(records):
                flops, scores = zip(*record["curve"], strict=True)
                style = {"lw": 1.9 if arm in (FIXED, DEV_LOSS) else 1.0, "label": None if number else arm}
                axes.plot([one / _TERA for one in flops], [100 * one for one in scores], color=COLOURS[colour], **style)
        axes.set(title=language, xlabel="TFLOP (equation A3)", ylabel="masked accuracy of the primary, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _in_order(by_arm: dict[str, list[dict[str, Any]]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Progressive arms last, so that they lie above."""
    return sorted(by_arm.items(), key=lambda item: item[0] in (FIXED, DEV_LOSS))
