"""`python -m benchmarks.initialisation.summary RECORD... --page PAGE`: one page for a reader with two minutes.

It has the question, a picture and a table; what they mean is read from a page that a person writes beside it
(`PAGE` with `-reading` before its ending). Records are those of `benchmarks.initialisation --items`; of each, the page
`RECORD` with the ending .md has every number.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.initialisation.arms import SYSTEMS, Start
from benchmarks.initialisation.costs import TASK_NAMES, Costs, Record
from benchmarks.initialisation.intervals import FinalScores, Interval, final_scores, mean_over, shares_of_base
from benchmarks.initialisation.page import tasks_with_curves
from benchmarks.initialisation.picture import drawing
from benchmarks.pages import RECORD_SUFFIX, markdown, read_record, write_picture
from lingraft.artifacts.files import write_text
from lingraft.comparison.plan import MASKED
from lingraft.config.systems import System
from lingraft.errors import LingraftError
from lingraft.reports.paper.efficiency import NEAR_MAXIMAL, informative
from lingraft.tables import counted

_NONE = "–"
_TRIVIAL, _INITIAL = "*trivial answer*", "*BL_BASE, as initialised*"
_CEILING, _SOURCE = "*BL_BASE, finetuned by labels of the language*", "*BL_BASE, in the source language*"
_ROWS = {
    Start.OVERLAP: "copied by overlap",
    Start.FITTED: "fitted",
    Start.TEXT: "aligned from text alone",
    Start.DICTIONARY: "aligned by a dictionary",
    Start.PAIRS: "aligned by sentence pairs",
}
"""Starts as titles name them."""
_FAMILIES = {"modern": "a modern encoder", "roberta": "RoBERTa's encoder"}
_NOTHING = "Nothing can be compared yet: there are no scores of `BL_BASE` from these rows above the trivial answer."


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and its picture."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.initialisation.summary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help=f"a file *{RECORD_SUFFIX}")
    parser.add_argument("--page", required=True, type=Path, help="written here, in the folder of the records")
    given = parser.parse_args(arguments)
    if elsewhere := [path for path in given.records if path.resolve().parent != given.page.resolve().parent]:
        raise LingraftError(f"{elsewhere[0]} must be in the folder of --page {given.page}, which links what it shows.")
    found = {path.name.removesuffix(RECORD_SUFFIX) + ".md": read_record(path) for path in given.records}
    picture = given.page.with_suffix(".png")
    reading = given.page.with_stem(f"{given.page.stem}-reading")
    words = reading.read_text(encoding="utf-8").strip() if reading.exists() else ""
    shown = sections(found)
    write_text(given.page, summary(shown, picture.name, words))
    if tasks := list(dict.fromkeys(task for section in shown for task in tasks_with_curves(section.records))):
        columns = {section.title: section.by_task for section in shown}
        write_picture(picture, drawing(columns, tasks, picture.stem, shares_costs=False).png())
    print(given.page)


def summary(shown: Sequence["Section"], picture: str, reading: str) -> str:
    """Write the page.

    Args:
        shown: a table each, from `sections`.
        picture: name of the file of its learning curves.
        reading: what it means, as a person wrote it.
    """
    sizes = shown[0].found["sizes"]
    languages = [*dict.fromkeys(record["language"] for section in shown for record in section.records)]
    parts = [
        "# Does a mini-model teach a language as well as the whole model?",
        f"An encoder of {sizes['layers']} layers was pretrained on English and finetuned on English tasks. A new "
        "language gets embeddings of its own, learned from plain text while all layers are frozen: over the whole "
        f"encoder (`BL_BASE`, the standard way) or over a mini-model (`MINIJOINT`: {sizes['depth']} layers at the "
        "bottom, with a head of their own since pretraining; `MINIPOST`: these and fresh ones, built afterwards). With "
        "them the finetuned model is tested in that language, in which it has seen no labels. "
        f"`BL_SMALL` is a model of {sizes['depth']} layers throughout. Languages: {', '.join(sorted(languages))}.",
        f"![Score over compute, by task and system]({picture})",
        _PICTURE,
    ]
    for section in shown:
        parts += [f"## {section.title[0].upper()}{section.title[1:]}", _table(section)]
        if left_out := [*_left_out(section)]:
            parts += [f"Not counted, since `BL_BASE` is hardly better than the trivial answer: {'; '.join(left_out)}."]
    links = ", ".join(f"[{name}]({page})" for page, name in {one.page: _family(one.found) for one in shown}.items())
    return "\n\n".join([*parts, _LEGEND, *filter(None, [reading]), f"Every number and all settings: {links}."]) + "\n"


class Section(NamedTuple):
    """The adaptations of one shape from one start."""

    page: str
    """Name of the page with every number."""
    found: Mapping[str, Any]
    """Contents of the JSON behind that page."""
    records: Sequence[Record]
    title: str
    columns: Sequence["_Column"]
    """Columns of the table: those tasks that count in some language."""

    @property
    def by_task(self) -> dict[str, Sequence[Record]]:
        """Records that each column of the table is of."""
        return {column.task: column.records for column in self.columns}


def sections(found: Mapping[str, dict[str, Any]]) -> list[Section]:
    """Group records by shape and start.

    Args:
        found: what each JSON of the benchmark holds, with items, by the name of its page.
    """
    return [
        Section(
            page=page,
            found=one,
            records=its,
            title=f"{_family(one)}, rows {_ROWS[start]}",
            columns=[column for task in _tasks(its) if (column := _column(its, task))],
        )
        for page, one in found.items()
        for start in Start
        if (its := [record for record in one["records"] if record["start"] == start])
    ]


def _family(found: Mapping[str, Any]) -> str:
    family = found["sizes"]["family"]
    return _FAMILIES.get(family, family)


_PICTURE = (
    "Means over the languages that a task counts in; bands are from the lowest to the highest pretraining seed, and a "
    "curve begins behind what its alignment cost. *MINIJOINT, whole* adapts MINIJOINT's primary over all layers: what "
    "it is apart from BL_BASE is due to its second head, and what MINIJOINT is apart from it, to the mini-model."
)
_LEGEND = (
    "Final score in percent; its share of `BL_BASE`'s from the same rows; and how many times less compute than "
    f"`BL_BASE` it takes to {NEAR_MAXIMAL:.0%} of that one's final score, alignments included. In "
    "parentheses 95% intervals: of scores and shares by bootstrap over pretraining seeds and test items, of compute "
    "over languages and seeds. All are means over the languages that a task counts in, which scores are not resampled "
    "over; with one seed or few, intervals are too narrow."
)


def _tasks(records: Sequence[Record]) -> list[str]:
    """Tasks with items, those with curves first, masked tokens last: they say least about transfer."""
    found, curves = {task for record in records for task in record.get("items", {})}, tasks_with_curves(records)
    return sorted(found, key=lambda task: (task == MASKED, task not in curves, task))


def _informative(its: Sequence[Record], task: str) -> list[str]:
    """Languages in which the standard way, from the same start and with every seed, learns what the task shows."""
    found: dict[str, bool] = {}
    for record in its:
        if record["system"] == System.BL_BASE and task in record["scores"] and task in record.get("trivial", {}):
            says = informative(record["scores"][task][-1], record["trivial"][task])
            found[record["language"]] = found.get(record["language"], True) and says
    return [language for language, says in found.items() if says]


class _Column(NamedTuple):
    """A task over the languages and seeds that all systems have, and in which it says something."""

    task: str
    records: list[Record]
    scores: FinalScores
    shares: dict[str, Interval]
    times: dict[str, str]

    @property
    def title(self) -> str:
        """Task, languages and seeds."""
        seeds = counted(len(self.scores.seeds), "seed")
        return f"{TASK_NAMES.get(self.task, self.task)} ({', '.join(self.scores.languages)}; {seeds})"

    def cell(self, system: str) -> str:
        """Score of a system, its share of BL_BASE's, and how many times less compute it takes."""
        if system not in self.shares:
            return _NONE
        words = [_percent(Interval.of(self.scores.by_system[system]), ".1f")]
        words += [] if system == System.BL_BASE else [_percent(self.shares[system], ".0f")]
        return "; ".join([*words, self.times[system]] if system in self.times else words)

    def mean(self, values: Mapping[tuple[str, int], float]) -> str:
        """Mean over the languages, and over the seeds of which it is known in all of these."""
        by_seed = [[(language, seed) for language in self.scores.languages] for seed in self.scores.seeds]
        known = [values[place] for places in by_seed if values.keys() >= {*places} for place in places]
        return f"{100 * mean(known):.1f}%" if known else _NONE


def _table(section: Section) -> str:
    found, its, columns = section.found, section.records, section.columns
    if not columns:
        return _NOTHING
    rows = [[_TRIVIAL, *(column.mean(_of_base(its, column.task, "trivial")) for column in columns)]]
    rows += [[_INITIAL, *(column.mean(_of_base(its, column.task, "scores")) for column in columns)]]
    rows += [[system, *(column.cell(system) for column in columns)] for system in map(str, SYSTEMS)]
    rows += [[_CEILING, *(column.mean(_ceilings(found, its, column.task)) for column in columns)]]
    rows += [[_SOURCE, *(column.mean(_in_source(found, column)) for column in columns)]]
    rows = [row for row in rows if any(cell != _NONE for cell in row[1:])]
    return markdown(["system", *(column.title for column in columns)], rows, left=1 + len(columns))


def _column(its: Sequence[Record], task: str) -> _Column | None:
    languages = _informative(its, task)
    scores = final_scores([record for record in its if record["language"] in languages], task)
    if System.BL_BASE not in scores.by_system:
        return None
    compared = [one for one in its if one["language"] in scores.languages and one["seed"] in scores.seeds]
    return _Column(
        task=task,
        records=compared,
        scores=scores,
        shares=shares_of_base(scores.by_system),
        times=_times(compared, task),
    )


def _of_base(its: Sequence[Record], task: str, name: str) -> dict[tuple[str, int], float]:
    """BL_BASE's trivial answer, or its first score, by language and seed."""
    ones = [one for one in its if one["system"] == System.BL_BASE and task in one.get(name, {})]
    values = {(one["language"], one["seed"]): one[name][task] for one in ones}
    return {place: value[0] if isinstance(value, list) else value for place, value in values.items()}


def _ceilings(found: Mapping[str, Any], its: Sequence[Record], task: str) -> dict[tuple[str, int], float]:
    ones = [one for one in found.get("ceilings", []) if (one["task"], one["start"]) == (task, its[0]["start"])]
    return {(one["language"], one["seed"]): one["score"] for one in ones}


def _in_source(found: Mapping[str, Any], column: _Column) -> dict[tuple[str, int], float]:
    """Scores of BL_BASE's primaries in the source language, the same for every language."""
    ones = [one for one in found.get("primaries", []) if System.BL_BASE in one["systems"]]
    scores = {one["seed"]: one["scores"][column.task] for one in ones if column.task in one["scores"]}
    return {(language, seed): score for seed, score in scores.items() for language in column.scores.languages}


def _times(its: Sequence[Record], task: str) -> dict[str, str]:
    """How many times less compute each system takes, or why there is no such number; only of what has curves."""
    costs = {
        language: Costs([record for record in its if record["language"] == language], task)
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
        elif over := mean_over(values):
            found[system] = f"{over.value:.1f}x ({over.low:.1f} to {over.high:.1f})"
    return found


def _percent(interval: Interval, form: str) -> str:
    value, low, high = (f"{100 * each:{form}}" for each in interval)
    return f"{value}% ({low} to {high})"


def _left_out(section: Section) -> Iterator[str]:
    references = [record for record in section.records if record["system"] == System.BL_BASE]
    for task in _tasks(section.records):
        languages = _informative(section.records, task)
        judged = dict.fromkeys(record["language"] for record in references if task in record["scores"])
        if absent := [language for language in judged if language not in languages]:
            yield f"{TASK_NAMES.get(task, task)} in {', '.join(absent)}"


if __name__ == "__main__":
    try:
        main()
    except LingraftError as error:
        sys.exit(f"error: {error}")
