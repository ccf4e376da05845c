"""One page on a comparison for a reader with two minutes: the question, a picture, a table, and what it means."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.initialisation.arms import SYSTEMS, Start
from benchmarks.initialisation.costs import NAMES, Costs, Record
from benchmarks.initialisation.intervals import Interval, final_scores, mean_over, shares_of_base
from benchmarks.pages import markdown
from lingraft.comparison.plan import MASKED
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import NEAR_MAXIMAL

INFORMATIVE = 0.05
"""How much better than the trivial answer BL_BASE must be from `overlap`, for a language to count in a task."""
_NONE = "–"


def summary(found: dict[str, Any], picture: str, details: str) -> str:
    """Write the page.

    Args:
        found: what the JSON of the benchmark holds, with items.
        picture: name of the file of its learning curves.
        details: name of the page that has every number.
    """
    records, sizes = found["records"], found["sizes"]
    languages = [*dict.fromkeys(record["language"] for record in records)]
    parts = [
        "# Does a mini-model teach a language as well as the whole model?",
        f"An encoder of {sizes['layers']} layers was pretrained on English and finetuned on English tasks. A new "
        "language gets embeddings of its own, learned from plain text while all layers are frozen: over the whole "
        f"encoder (`BL_BASE`, the standard way) or over {sizes['depth']} layers at the bottom (`MINIPOST`, "
        "`MINIJOINT`). With them the finetuned model is tested in that language, in which it has seen no labels. "
        f"`BL_SMALL` is a model of {sizes['depth']} layers throughout. Languages: {', '.join(languages)}.",
        f"![Score over compute, by task, start and system]({picture})",
    ]
    tasks = _tasks(records)
    for start in Start:
        if its := [record for record in records if record["start"] == start]:
            parts += [f"## Rows that start from {NAMES[start]}", _table(its, records, tasks)]
    parts += [_LEGEND]
    if left_out := [*_left_out(records, tasks)]:
        parts += ["Not counted, since `BL_BASE` is hardly better than the trivial answer: " + "; ".join(left_out) + "."]
    return "\n\n".join([*parts, f"Every number by language, and all settings: [details]({details})."]) + "\n"


_LEGEND = (
    "Final score in percent; its share of `BL_BASE`'s from the same start; and how many times less compute than "
    f"`BL_BASE` from `overlap` it takes to {NEAR_MAXIMAL:.0%} of that one's final score, the alignment included. In "
    "parentheses 95% intervals: of scores and shares by bootstrap over pretraining seeds and test items, of compute "
    "over languages and seeds. All are means over the languages that a task counts in."
)


def _tasks(records: Sequence[Record]) -> list[str]:
    """Tasks with items, by name, masked tokens last: they say least about transfer."""
    found = {task for record in records for task in record.get("items", {})}
    return sorted(found, key=lambda task: (task == MASKED, task))


def _informative(records: Sequence[Record], task: str) -> list[str]:
    """Languages in which the standard way learns something that the task shows."""
    references = [
        record
        for record in records
        if (record["start"], record["system"]) == (Start.OVERLAP, System.BL_BASE) and task in record["scores"]
    ]
    found = dict.fromkeys(record["language"] for record in references)
    return [
        language
        for language in found
        if all(
            record["scores"][task][-1] >= record["trivial"][task] + INFORMATIVE
            for record in references
            if record["language"] == language
        )
    ]


def _table(its: Sequence[Record], records: Sequence[Record], tasks: Sequence[str]) -> str:
    columns = {}
    for task in tasks:
        languages = _informative(records, task)
        counted = [record for record in its if record["language"] in languages]
        scores = final_scores(counted, task)
        if System.BL_BASE in scores:
            times = _times(counted, records, task)
            columns[f"{task} ({', '.join(languages)})"] = scores, shares_of_base(scores), times
    rows = []
    for system in map(str, SYSTEMS):
        cells = []
        for scores, shares, times in columns.values():
            if system not in scores:
                cells.append(_NONE)
                continue
            score = _percent(Interval.of(scores[system]), ".1f")
            share = "" if system == System.BL_BASE else f"; {_percent(shares[system], '.0f')}"
            cells.append(f"{score}{share}; {times.get(system, _NONE)}")
        if any(cell != _NONE for cell in cells):
            rows.append([system, *cells])
    return markdown(["system", *columns], rows, left=1 + len(columns))


def _times(its: Sequence[Record], records: Sequence[Record], task: str) -> dict[str, str]:
    """How many times less compute each system takes, in words where it does not get there."""
    costs = {
        language: Costs([record for record in records if record["language"] == language], task)
        for language in {record["language"] for record in its}
    }
    found = {}
    for system in dict.fromkeys(record["system"] for record in its):
        values = {
            (record["language"], record["seed"]): costs[record["language"]].times_less(record)
            for record in its
            if record["system"] == system
        }
        known = {key: value for key, value in values.items() if value is not None}
        missed = sum(value == 0 or math.isinf(value) for value in known.values())
        if missed:
            found[system] = f"not reached in {missed} of {len(known)}"
        elif known:
            mean = mean_over(known)
            found[system] = f"{mean.value:.1f}x ({mean.low:.1f} to {mean.high:.1f})"
    return found


def _percent(interval: Interval, form: str) -> str:
    value, low, high = (f"{100 * each:{form}}" for each in interval)
    return f"{value}% ({low} to {high})"


def _left_out(records: Sequence[Record], tasks: Sequence[str]) -> Iterator[str]:
    for task in tasks:
        judged = dict.fromkeys(record["language"] for record in records if task in record["scores"])
        if absent := [language for language in judged if language not in _informative(records, task)]:
            yield f"{task} in {', '.join(absent)}"
