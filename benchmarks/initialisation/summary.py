"""One page on a comparison for a reader with two minutes: the question, a picture, a table, and what it means."""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.initialisation.arms import SYSTEMS, Start
from benchmarks.initialisation.costs import NAMES, Costs, Record
from benchmarks.initialisation.intervals import Interval, final_scores, mean_over, shares_of_base
from benchmarks.pages import markdown
from lingraft.comparison.plan import MASKED
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import NEAR_MAXIMAL, informative
from lingraft.tables import counted

_NONE = "–"
_NOTHING = "Nothing can be compared yet: there are no scores of `BL_BASE` from this start above the trivial answer."


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
            if left_out := [*_left_out(its, tasks)]:
                parts += [
                    f"Not counted, since `BL_BASE` is hardly better than the trivial answer: {'; '.join(left_out)}."
                ]
    parts += [_LEGEND]
    return "\n\n".join([*parts, f"Every number by language, and all settings: [details]({details})."]) + "\n"


_LEGEND = (
    "Final score in percent; its share of `BL_BASE`'s from the same start; and how many times less compute than "
    f"`BL_BASE` from `overlap` it takes to {NEAR_MAXIMAL:.0%} of that one's final score, the alignment included. In "
    "parentheses 95% intervals: of scores and shares by bootstrap over pretraining seeds and test items, of compute "
    "over languages and seeds. All are means over the languages that a task counts in, which scores are not resampled "
    "over; with one seed or few, intervals are too narrow."
)


def _tasks(records: Sequence[Record]) -> list[str]:
    """Tasks with items, by name, masked tokens last: they say least about transfer."""
    found = {task for record in records for task in record.get("items", {})}
    return sorted(found, key=lambda task: (task == MASKED, task))


def _informative(its: Sequence[Record], task: str) -> list[str]:
    """Languages in which the standard way, from the same start and with every seed, learns what the task shows."""
    found: dict[str, bool] = {}
    for record in its:
        if record["system"] == System.BL_BASE and task in record["scores"] and task in record.get("trivial", {}):
            says = informative(record["scores"][task][-1], record["trivial"][task])
            found[record["language"]] = found.get(record["language"], True) and says
    return [language for language, says in found.items() if says]


def _table(its: Sequence[Record], records: Sequence[Record], tasks: Sequence[str]) -> str:
    columns = {}
    for task in tasks:
        languages = _informative(its, task)
        scores = final_scores([record for record in its if record["language"] in languages], task)
        if System.BL_BASE in scores.by_system:
            compared = [one for one in its if one["language"] in scores.languages and one["seed"] in scores.seeds]
            title = f"{task} ({', '.join(scores.languages)}; {counted(len(scores.seeds), 'seed')})"
            columns[title] = scores.by_system, shares_of_base(scores.by_system), _times(compared, records, task)
    rows = []
    for system in map(str, SYSTEMS):
        cells = []
        for by_system, shares, times in columns.values():
            if system not in by_system:
                cells.append(_NONE)
                continue
            score = _percent(Interval.of(by_system[system]), ".1f")
            share = "" if system == System.BL_BASE else f"; {_percent(shares[system], '.0f')}"
            cells.append(f"{score}{share}; {times.get(system, _NONE)}")
        if any(cell != _NONE for cell in cells):
            rows.append([system, *cells])
    return markdown(["system", *columns], rows, left=1 + len(columns)) if columns else _NOTHING


def _times(its: Sequence[Record], records: Sequence[Record], task: str) -> dict[str, str]:
    """How many times less compute each system takes, or why there is no such number."""
    costs = {
        language: Costs([record for record in records if record["language"] == language], task)
        for language in {record["language"] for record in its}
    }
    found = {}
    for system in dict.fromkeys(record["system"] for record in its):
        values: dict[tuple[str, int], float] = {}
        reasons: list[str] = []
        for record in its:
            ratio = costs[record["language"]].speed_up(record) if record["system"] == system else None
            if isinstance(ratio, str):
                reasons.append(ratio)
            elif ratio is not None:
                values[record["language"], record["seed"]] = ratio
        if reasons:
            count = len(values) + len(reasons)
            found[system] = "; ".join(
                f"{reason} in {reasons.count(reason)} of {count}" for reason in sorted({*reasons})
            )
        elif mean := mean_over(values):
            found[system] = f"{mean.value:.1f}x ({mean.low:.1f} to {mean.high:.1f})"
    return found


def _percent(interval: Interval, form: str) -> str:
    value, low, high = (f"{100 * each:{form}}" for each in interval)
    return f"{value}% ({low} to {high})"


def _left_out(its: Sequence[Record], tasks: Sequence[str]) -> Iterator[str]:
    references = [record for record in its if record["system"] == System.BL_BASE]
    for task in tasks:
        languages = _informative(its, task)
        judged = dict.fromkeys(record["language"] for record in references if task in record["scores"])
        if absent := [language for language in judged if language not in languages]:
            yield f"{task} in {', '.join(absent)}"
