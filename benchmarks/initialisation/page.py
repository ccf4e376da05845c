"""The page on what `benchmarks.initialisation` found: how much compute each system needs from each start."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.initialisation.arms import WHOLE, Start, in_order
from benchmarks.initialisation.budgets import at_equal_cost
from benchmarks.initialisation.costs import (
    NAMES,
    TASK_NAMES,
    Costs,
    Record,
    is_fitted,
    reference_start,
    tasks_with_curves,
    without_depths,
)
from benchmarks.initialisation.intervals import Interval
from benchmarks.initialisation.overview import (
    UNKNOWN,
    Section,
    family,
    fresh_layers,
    languages_that_count,
    tasks_that_count,
)
from benchmarks.initialisation.picture import by_start, drawing
from benchmarks.pages import write_picture
from lingraft.artifacts.files import write_text
from lingraft.comparison.plan import ALIGNMENT, MASKED
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import NEAR_MAXIMAL
from lingraft.tables import markdown_table

_TERA = 1e12
_NOT_REACHED = "not reached"
_COUNTED = "the languages that a task counts in, and the seeds that all systems of a column have"


def write(found: dict[str, Any], shown: Sequence[Section], place: Path) -> None:
    """Write the page, and its learning curves beside it.

    Args:
        found: what the JSON of the benchmark holds.
        shown: its sections.
        place: the page's file.
    """
    picture, records = place.with_suffix(".png"), found["records"]
    write_text(place, page(found, shown, picture.name))
    if tasks := tasks_that_count(shown) or tasks_with_curves(records):
        counted = {section.short_title: section.by_task for section in shown}
        columns = counted or by_start(records, tasks)
        write_picture(picture, drawing(columns, tasks, picture.stem, shares_axes=not counted).png())


def page(found: dict[str, Any], shown: Sequence[Section], picture: str) -> str:
    """Write the page.

    Args:
        found: what the JSON of the benchmark holds.
        shown: its sections.
        picture: name of the file of its learning curves.
    """
    records: list[Record] = found["records"]
    parts = [f"# How soon each system of {family(found)} is near its final score", *_introduction(found)]
    if not records:
        return "\n\n".join([*parts, "Nothing has been measured yet."]) + "\n"
    systems, reference = without_depths(records), reference_start(records)
    if tasks_with_curves(records):
        parts += [f"![Learning curves by start and system]({picture})", curves_caption(counted=bool(shown))]
    if reference and len(_starts(records)) > 1 and (summary := [*_summary(systems, reference)]):
        head = ["language", "task", "rows start as", "least compute", "system", "times less than `BL_BASE`"]
        head += ["than its whole run"]
        parts += ["## Least compute to 95%", _SUMMARY, markdown_table(head, summary, left=3)]
    if shown:
        parts += ["## Means over languages", _MEANS]
        parts += [_DEPTHS] if any(section.is_by_depth for section in shown) else []
    for section in shown:
        parts += [f"### {section.short_title}", section.table()]
    parts += ["## Every language", _scores_and_costs(records, reference)]
    languages = list(dict.fromkeys(record["language"] for record in records))
    if costs := [*_costs(systems, shown, languages, reference)]:
        head = ["task", "rows start as", "system", *languages]
        head += ["% at equal compute", "% at equal seconds", "times less to a score of all"]
        parts += ["## Compute to the target, and scores at equal cost", _COSTS, markdown_table(head, costs, left=3)]
    quality = [*_quality(records)]
    if quality:
        head = ["language", "from", "start", "agreement of halves", "rows from neighbours", "from translations", "s"]
        parts += ["## Alignments", markdown_table(head, quality, left=3)]
    return "\n\n".join([*parts, *_facts(found), *_commands(found)]) + "\n"


def _facts(found: dict[str, Any]) -> Iterator[str]:
    """Yield the primaries in the source language, what is cut, and all settings; earlier records have none."""
    primaries = found.get("primaries", [])
    if primaries:
        tasks = list(dict.fromkeys(task for one in primaries for task in one["scores"]))
        head = [
            "primary of",
            "layers",
            "seed",
            *(f"{TASK_NAMES.get(task, task)}, %" for task in tasks),
            "loss by update",
        ]
        yield "## Primaries in the source language"
        yield markdown_table(head, [_primary(one, tasks) for one in primaries])
    if ceilings := found.get("ceilings"):
        scores = {(one["start"], one["seed"], one["task"], one["language"]): one["score"] for one in ceilings}
        languages = list(dict.fromkeys(one["language"] for one in ceilings))
        rows = [
            [NAMES[start], str(seed), TASK_NAMES.get(task, task)]
            + [_share(scores.get((start, seed, task, language))) for language in languages]
            for start, seed, task in dict.fromkeys(key[:3] for key in scores)
        ]
        yield "## BL_BASE's primary with its embeddings, finetuned on labels in the language, %"
        yield markdown_table(["rows start as", "seed", "task", *languages], rows, left=3)
    if cut := found.get("cut"):
        languages = list(dict.fromkeys(language for shares in cut.values() for language in shares))
        shares = [[task, *(_share(cut[task].get(language)) for language in languages)] for task in cut]
        yield "## Test examples that are longer than a block, %"
        yield markdown_table(["task", *languages], shares)
    if settings := found.get("settings"):
        yield "## Settings"
        yield markdown_table(
            ["of", "settings"], [[name, _in_words(values)] for name, values in settings.items()], left=2
        )


def curves_caption(counted: bool) -> str:
    """Say what the picture shows.

    Args:
        counted: whether it is of the languages that a task counts in, not of all.
    """
    return (
        f"Curves are means over {_COUNTED if counted else 'all languages'}; bands are "
        "from the lowest to the highest pretraining seed. A curve starts at the compute of its alignment. The dotted "
        f"line without markers is at {NEAR_MAXIMAL:.0%} of `BL_BASE`'s final score in that column."
        + (" Columns have scales of their own." if counted else "")
    )


def _commands(found: dict[str, Any]) -> Iterator[str]:
    if found["runs"]:
        yield "## Commands"
        told = (
            f"- `{run['command']}` on {run['device']}, precision {run['precision']}, commit {run['commit']}"
            for run in found["runs"]
        )
        yield "\n".join(told)


def _primary(one: dict[str, Any], tasks: Sequence[str]) -> list[str]:
    losses = ", ".join(
        f"{step:,}: {loss}" for step, loss in sorted((int(at), loss) for at, loss in one["loss"].items())
    )
    scores = [_share(one["scores"].get(task)) for task in tasks]
    return [", ".join(one["systems"]), str(one["layers"]), str(one["seed"]), *scores, losses]


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f}"


def _in_words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def _introduction(found: dict[str, Any]) -> list[str]:
    sizes = found["sizes"]
    schedules = ", ".join(
        f"from {name} {sizes['adaptation'][start][0]:,} updates at a rate of up to {sizes['adaptation'][start][1]:g}"
        for start, name in NAMES.items()
        if start in sizes["adaptation"]
    )
    devices = {(run["device"], run.get("precision")) for run in found["runs"]}
    several = " Seconds are means over seeds of several processors, numbers of cores or precisions."
    seconds = several if len(devices) > 1 else ""
    return [
        f"The primary has {sizes['layers']} layers of width {sizes['width']}. BL_SMALL and MINIJOINT adapt over "
        f"{sizes['depth']}, MINIPOST over as many and {fresh_layers(found)}. Pretraining takes "
        f"{sizes['pretraining_steps']:,} updates, step 1b {sizes['mini_steps']:,}. Adaptation takes {schedules}. "
        f"{'[Settings](#settings) and commands' if found.get('settings') else 'Commands'} are below.",
        "Scores are of the primary with the language's embeddings, on test text, before and after adaptation: accuracy "
        f"on masked tokens; the share of {_counterparts(sizes)} found, in both directions, by hidden states after the "
        "top layer; and a task finetuned in the source language, means over its seeds. Compute is "
        "that of adaptation by equation A3; pretraining, step 1b and evaluation are left out, as in the paper. An "
        "alignment's compute is its seconds, with those of the source's static vectors, at the FLOPs per second of "
        "standard adaptation on the same machine. "
        f"The target is {NEAR_MAXIMAL:.0%} of BL_BASE's final score from {_reference_in_words(found)} with the same "
        "seed; between checkpoints it is interpolated, and at update 0 an alignment's compute is all there is."
        f"{seconds}",
    ]


def _reference_in_words(found: dict[str, Any]) -> str:
    start = reference_start(found["records"]) if found["records"] else Start.OVERLAP
    return NAMES[start] if start else "the same rows"


def _counterparts(sizes: dict[str, Any]) -> str:
    return f"translations of {sizes['lines']}'s test texts" if "lines" in sizes else "counterparts"


_SUMMARY = (
    "The system that is there with the least compute, by means over seeds; and how many times less that is than what "
    "standard adaptation needs for the same score, and than its whole run."
)
_MEANS = (
    "Final scores, shares of BL_BASE's from the same rows, and how many times less compute they take to the target, "
    f"{NEAR_MAXIMAL:.0%} of BL_BASE's final score from these rows, in the cases (a language with a seed) that need "
    "updates to reach it, if these are two or more; in parentheses 95% intervals."
)
_DEPTHS = (
    f"*{System.MINIJOINT} over* further depths (figure 4) has a primary for each, whose lower head is there; *{WHOLE}* "
    "adapts MINIJOINT's own primary over all layers: what it is apart from BL_BASE is due to its second head, and what "
    "MINIJOINT is apart from it, to the mini-model. They are compared in the languages and seeds that all of them have."
)
_COSTS = (
    f"Below a language is the compute to the target, {NEAR_MAXIMAL:.0%} of BL_BASE's final score, in TFLOP as a mean "
    "over seeds, and how many times less that is than BL_BASE's; –: the task does not count. The other columns are "
    "means over these languages and seeds, with 95% intervals by bootstrap over both; alignments are included. Equal "
    "compute is what the cheapest system takes for its whole adaptation, equal seconds what the quickest takes; –: "
    "somewhere an alignment alone takes more. The last column is about the lowest final score of all systems in a "
    "language with a seed, so that all reach it: how many times less compute than BL_BASE from the same rows they take "
    "to it, in the cases in which both need updates."
)


def _summary(records: Sequence[Record], reference: Start) -> Iterator[list[str]]:
    """Yield the best system from each start; all starts are compared with one, so that these compare as well."""
    for language in dict.fromkeys(record["language"] for record in records):
        its = [record for record in records if record["language"] == language]
        for task in finetuned_tasks(its):
            costs = Costs(its, task, reference)
            for start in _starts(its):
                arms = _by_system([record for record in its if record["start"] == start])
                spent = {system: _mean([costs.reached(one) for one in ones]) for system, ones in arms.items()}
                known = {system: flops for system, flops in spent.items() if flops is not None}
                if not known:
                    continue
                best = min(known, key=lambda system: known[system])
                there = best if math.isfinite(known[best]) else ""
                spent_flops, ratio = _flops_and_times(arms[best], costs)
                of_whole = _mean([costs.times_less_than_whole(one) for one in arms[best]]) if there else None
                row = [language, task, NAMES[start], spent_flops if there else _NOT_REACHED, there, ratio]
                yield [*row, f"{of_whole:.1f}" if of_whole else UNKNOWN]


def _scores_and_costs(records: Sequence[Record], reference: Start | None) -> str:
    """Return a table with a row for each language, start and system: scores and cost."""
    tasks = [*finetuned_tasks(records), ALIGNMENT, MASKED]
    head = ["language", "rows start as", "system", *(f"{TASK_NAMES.get(task, task)}, %" for task in tasks)]
    head += ["TFLOP", "s (alignment's)"]
    rows = []
    for language in dict.fromkeys(record["language"] for record in records):
        its = [record for record in records if record["language"] == language]
        costs = Costs(its, next(iter(tasks_with_curves(records)), MASKED), reference)
        for start in _starts(its):
            for system, ones in _by_system([record for record in its if record["start"] == start]).items():
                row = [language, NAMES[start] + _failures(ones), system, *(_scores(ones, task) for task in tasks)]
                rows.append([*row, *_whole_cost(ones, costs)])
    return markdown_table(head, rows, left=3)


def _counts(records: Sequence[Record], task: str) -> bool:
    """Whether a task says something in a language, which is not known without a trivial answer."""
    return not any(task in one.get("trivial", {}) for one in records) or bool(languages_that_count(records, task))


def _failures(records: Sequence[Record]) -> str:
    """How many alignments failed, so that rows are fitted."""
    failed = sum(map(is_fitted, records))
    return f" (failed in {failed} of {len(records)}: rows are fitted)" if failed else ""


def _whole_cost(records: Sequence[Record], costs: Costs) -> list[str]:
    flops = mean(costs.whole(one) for one in records)
    seconds, own = mean(one["elapsed_s"][-1] for one in records), mean(one["alignment_s"] for one in records)
    return [f"{flops / _TERA:.3g}", f"{seconds + own:.0f}" + (f" ({own:.0f})" if own else "")]


def _near_maximal(records: Sequence[Record], costs: Costs) -> str:
    spent, ratio = _flops_and_times(records, costs)
    return spent if ratio == UNKNOWN else f"{spent}; {ratio}x"


def _quality(records: Sequence[Record]) -> Iterator[list[str]]:
    """One row a language and start; with several seeds or primaries, all agreements and the mean of the others."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if "quality" in record:
            found.setdefault((record["language"], record["start"]), []).append(record)
    for (language, _), its in found.items():
        qualities = [one["quality"] for one in its]
        lowest, highest = (choose(one["agreement"] for one in qualities) for choose in (min, max))
        agreement = f"{lowest:.2f}" + (f" to {highest:.2f}" if f"{highest:.2f}" != f"{lowest:.2f}" else "")
        agreement += _failures(its)
        numbers = [f"{mean(one[name] for one in qualities):,.0f}" for name in ("mapped", "translated")]
        seconds = mean(one["alignment_s"] for one in its)
        yield [language, qualities[0]["resource"], qualities[0]["start"], agreement, *numbers, f"{seconds:.0f}"]


def _costs(
    records: Sequence[Record], shown: Sequence[Section], languages: Sequence[str], reference: Start | None
) -> Iterator[list[str]]:
    """Yield a row a task, start and system, over the languages that count; all do where no items were kept."""
    counted = {(one.start, task): its for one in shown if not one.is_by_depth for task, its in one.by_task.items()}
    every = {start: [one for one in records if one["start"] == start] for start in _starts(records)}
    for task in tasks_with_curves(records):
        costs = {
            language: Costs([one for one in records if one["language"] == language], task, reference)
            for language in languages
        }
        for start, of_start in every.items():
            its = counted.get((start, task), ()) if shown else of_start
            by_language = {language: [one for one in its if one["language"] == language] for language in languages}
            found = at_equal_cost(its, task)
            for system in in_order(found):
                equal = found[system]
                near = [
                    _near_maximal([one for one in ones if one["system"] == system], costs[language])
                    if _counts(ones, task)
                    else UNKNOWN
                    for language, ones in by_language.items()
                ]
                scores = [_interval(score, 100, ".1f") for score in (equal.score_at_flops, equal.score_at_seconds)]
                row = [*near, *scores, _interval(equal.times_less_to_common, 1, ".1f")]
                if {*row} != {UNKNOWN}:
                    yield [TASK_NAMES.get(task, task), NAMES[start], system, *row]


def _interval(found: Interval | None, times: float, form: str) -> str:
    if found is None:
        return UNKNOWN
    return f"{times * found.value:{form}} ({times * found.low:{form}} to {times * found.high:{form}})"


def finetuned_tasks(records: Sequence[Record]) -> list[str]:
    """Return the names of the finetuned tasks that there are scores of."""
    return [*dict.fromkeys(task for record in records for task in record["scores"] if task not in (MASKED, ALIGNMENT))]


def _starts(records: Sequence[Record]) -> list[Start]:
    found = {record["start"] for record in records}
    return [start for start in Start if start in found]


def _by_system(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Group by system, in their order."""
    systems = in_order(record["system"] for record in records)
    return {system: [record for record in records if record["system"] == system] for system in systems}


def _mean(values: Sequence[float | None]) -> float | None:
    """Infinite where one is; None where none is known."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _scores(records: Sequence[Record], task: str) -> str:
    found = [record["scores"][task] for record in records if task in record["scores"]]
    if not found:
        return UNKNOWN
    last = [100 * scores[-1] for scores in found]
    spread = f" ± {stdev(last):.1f}" if len(last) > 1 else ""
    return f"{100 * mean(scores[0] for scores in found):.1f} → {mean(last):.1f}{spread}"


def _flops_and_times(records: Sequence[Record], costs: Costs) -> tuple[str, str]:
    """Means over seeds, if all of them got there; else how many did not."""
    spent = [flops for record in records if (flops := costs.reached(record)) is not None]
    if not spent:
        return UNKNOWN, UNKNOWN
    if missed := sum(map(math.isinf, spent)):
        seeds = f" by {missed} of {len(spent)} seeds" if len(spent) > 1 else ""
        return _NOT_REACHED + seeds, UNKNOWN
    ratio = _mean([costs.times_less(record) for record in records])
    return f"{mean(spent) / _TERA:.3g}", UNKNOWN if ratio is None else f"{ratio:.1f}"
