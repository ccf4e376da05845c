"""`python -m benchmarks.initialisation.summary RECORD... [--page PAGE]`: pages made anew from records.

The page of each record of `benchmarks.initialisation`, beside it with the ending .md, has every task, depth and number.
PAGE is for a reader with two minutes, from records with `--items`: the question, a picture and a table; what they mean
is read from a page that a person writes beside it (`PAGE` with `-reading` before its ending), of which all above its
heading opens the page.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.initialisation.arms import in_order
from benchmarks.initialisation.costs import TASK_NAMES, Record
from benchmarks.initialisation.overview import (
    NOT_ALIGNED,
    NOTHING,
    Section,
    family,
    fresh_layers,
    sections,
    tasks_that_count,
)
from benchmarks.initialisation.page import curves_caption
from benchmarks.initialisation.page import write as write_page
from benchmarks.initialisation.picture import NOT_COUNTED, drawing
from benchmarks.initialisation.reading import filled
from benchmarks.pages import RECORD_SUFFIX, read_record, write_picture
from lingraft.artifacts.files import write_text
from lingraft.comparison.plan import ALIGNMENT
from lingraft.config.systems import System
from lingraft.errors import LingraftError
from lingraft.reports.paper.efficiency import NEAR_MAXIMAL
from lingraft.tables import capital, markdown_table

_MEANING = "## What it means"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages and their pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.initialisation.summary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help=f"a file *{RECORD_SUFFIX}")
    parser.add_argument("--page", type=Path, help="written here, in the folder of the records; none if absent")
    given = parser.parse_args(arguments)
    place: Path | None = given.page
    if place and (elsewhere := [path for path in given.records if path.resolve().parent != place.resolve().parent]):
        raise LingraftError(f"{elsewhere[0]} must be in the folder of --page {place}, which links what it shows.")
    found, its = {}, []
    for path in given.records:
        details = path.with_name(path.name.removesuffix(RECORD_SUFFIX) + ".md")
        one = read_record(path)
        shown = sections(one)
        write_page(one, shown, details)
        found[details.name] = one
        its += shown
        print(details)
    if place:
        _write_summary(found, its, place)
        print(place)


def _write_summary(found: Mapping[str, dict[str, Any]], its: Sequence[Section], place: Path) -> None:
    """Write the page for a reader with two minutes, and its picture."""
    picture = place.with_suffix(".png")
    reading = place.with_stem(f"{place.stem}-reading")
    words = reading.read_text(encoding="utf-8").strip() if reading.exists() else ""
    write_text(place, summary(found, its, picture.name, words))
    shown = _without_depths(its)
    if tasks := tasks_that_count(shown):
        columns = {
            section.title: {task: _of_the_paper(records) for task, records in section.by_task.items()}
            for section in shown
        }
        write_picture(picture, drawing(columns, tasks, picture.stem, shares_axes=False).png())


def _without_depths(its: Iterable[Section]) -> list[Section]:
    return [section for section in its if not section.is_by_depth]


def _of_the_paper(its: Sequence[Record]) -> list[Record]:
    """Records of the paper's four systems."""
    return [one for one in its if one["system"] in [*System]]


def summary(found: Mapping[str, dict[str, Any]], its: Sequence[Section], picture: str, reading: str) -> str:
    """Write the page.

    Args:
        found: what each JSON of the benchmark holds, with items, by the name of its page.
        its: sections of all of them.
        picture: name of the file of its learning curves.
        reading: a short answer and what it means, as a person wrote them, with places for numbers.

    Raises:
        LingraftError: the records have no number for a place.
    """
    shown = _without_depths(its)
    tasks = tasks_that_count(shown)
    short, heading, means = filled(reading, its).partition(_MEANING)
    languages = sorted({record["language"] for one in found.values() for record in one["records"]})
    links = [f"[{family(one)}]({page})" for page, one in found.items()]
    its_records = " ".join(str(Path(page).with_suffix(RECORD_SUFFIX)) for page in found)
    parts = [
        "# Does a mini-model teach a language as well as the whole model?",
        *filter(None, [short.strip()]),
        "An encoder was pretrained on English and finetuned on English tasks. A new language gets embeddings of its "
        "own, learned from plain text while all layers are frozen: over the whole encoder (`BL_BASE`, the standard "
        "way) or over a mini-model (`MINIJOINT`: its bottom layers, with a head of their own since pretraining; "
        "`MINIPOST`: the same with fresh ones on top, trained afterwards). The finetuned model is then tested with "
        "these embeddings, without having seen a label of that language. `BL_SMALL` is a shallow encoder of its own, "
        "as deep as the mini-model. "
        f"{_shapes(found)} Languages: {', '.join(languages)}.",
        "A token's row in the new embeddings starts in one of two ways. By `overlap`, as in "
        "[the paper](https://arxiv.org/abs/2212.10503), it is a copy of the English row if English has the token, too, "
        "and random otherwise. An *aligned* row is the mean of English rows with the same meaning, found from text "
        "alone or by a dictionary ([how](../guides/alignment.md)). Scores are "
        "the shares of words that get the right part of speech; of translations that are found by their hidden states "
        f"among {_lines(found)} lines of XNLI, as a mean of both directions; and of LibreOffice's help pages that get "
        "the right topic. The trivial answer is the most frequent class, or a guess.",
        *([f"![Score over compute, by task and system]({picture})", curves_caption(counted=True)] if tasks else []),
        *([_legend(found.values()) + _not_aligned(shown), _table(shown, tasks)] if tasks else [NOTHING]),
        *filter(None, [heading + means]),
        f"All tasks, depths, numbers, settings and commands: {', '.join(links)}. This page is made from their records: "
        f"`python -m benchmarks.initialisation.summary {its_records} --page PAGE`.",
    ]
    return "\n\n".join(parts) + "\n"


def _shapes(found: Mapping[str, dict[str, Any]]) -> str:
    """How large each encoder is, and its mini-model."""
    told = []
    for one in found.values():
        layers, width, depth = (one["sizes"][name] for name in ("layers", "width", "depth"))
        told.append(f"{family(one)} has {layers} layers of width {width}, {depth} in the mini-model")
        told[-1] += f" and {fresh_layers(one)} in `MINIPOST`"
    return f"{capital('; '.join(told))}."


def _legend(found: Iterable[Mapping[str, Any]]) -> str:
    """How to read the table."""
    aligned = [one for one in found if any(record["alignment_s"] for record in one["records"])]
    devices = sorted({run["device"].partition(", bound")[0] for one in aligned for run in one["runs"]})
    charged = f" Alignments are charged by their seconds on {', '.join(devices)}." if devices else ""
    return (
        "The table has, with 95% intervals in parentheses,\n\n"
        "- the final score;\n"
        "- its share of `BL_BASE`'s from the same start;\n"
        f"- the speed-up: how many times less compute than `BL_BASE` it takes to the target ({NEAR_MAXIMAL:.0%} of "
        "`BL_BASE`'s final score), as a mean of the cases (a language with a seed) in which both need updates; a "
        "single one is omitted. Other cases are counted: those in which the system never reaches the target or needs "
        "no update to it, and those in which `BL_BASE` alone needs none;\n"
        "- beside a name, the share of `BL_BASE`'s compute that its whole adaptation, of as many updates, takes in the "
        f"languages of the first task.{charged} Pretraining and the one-off training of MINIPOST's fresh layers "
        "are left out, as in the paper.\n\n"
        "Intervals are by bootstrap over pretraining seeds and test items (speed-ups: over languages and seeds); with "
        "so few seeds they are too narrow. A task counts in the languages in which `BL_BASE` ends 5 points above the "
        "trivial answer with every seed. Tasks without learning curves are on the pages behind this one."
    )


def _lines(found: Mapping[str, dict[str, Any]]) -> int:
    """How many lines translations are looked for among."""
    items = (record["items"].get(ALIGNMENT) for one in found.values() for record in one["records"] if "items" in record)
    return max((len(one["found"]) for one in items if one), default=0)


def _not_aligned(shown: Sequence[Section]) -> str:
    """Languages that start from other rows than a section's title says."""
    return "".join(
        f" Not counted with rows {one.rows_start}, since {NOT_ALIGNED}: {', '.join(one.not_aligned)}."
        for one in shown
        if one.not_aligned
    )


def _table(shown: Sequence[Section], tasks: Sequence[str]) -> str:
    rows = []
    for section in shown:
        counts = {column.task: column.counts for column in section.columns}
        rows += [
            [f"**{section.title}**", *(counts.get(task, NOT_COUNTED) for task in tasks)],
            *section.rows(tasks, in_order(System), "<br>"),
        ]
    return markdown_table(["system", *(TASK_NAMES.get(task, task) for task in tasks)], rows, left=1 + len(tasks))


if __name__ == "__main__":
    try:
        main()
    except LingraftError as error:
        sys.exit(f"error: {error}")
