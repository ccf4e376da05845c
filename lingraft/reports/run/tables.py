"""The report's tables: cells for the page, the terminal and the description of a run in MLflow."""

from collections.abc import Iterator
from typing import NamedTuple

from lingraft.artifacts.manifest import Cost
from lingraft.data.languages import language_name, name_and_tag
from lingraft.reports.run.records import RunRecords, layers_of
from lingraft.stages.results import LanguageResult, SeedScores, metric_label
from lingraft.tables import format_flops, markdown_table, percent, text_table

NOTES = (
    "before: embeddings as initialised; after: as learned. Scores are of test data only, ± the standard deviation over "
    "finetuning seeds.",
    "baseline: the best of what needs no learning in the language: one answer for all, BM25, the source's tokenizer.",
)


class ScoreRow(NamedTuple):
    """One score of one language's embeddings."""

    name: str
    result: LanguageResult
    before: SeedScores | None
    after: SeedScores
    source: SeedScores | None = None
    baseline: tuple[float, str] | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of a table's row."""
        over = f"{layers_of(self.result)}{' standard' * self.result.standard}"
        baseline = f"{percent(self.baseline[0])} {metric_label(self.baseline[1])}" if self.baseline else ""
        before = percent(self.before.mean) if self.before else ""
        source = spread(self.source) if self.source else ""
        return (self.name, language_name(self.result.language), over, before, spread(self.after), source, baseline)


def head(records: RunRecords) -> tuple[str, ...]:
    """Return the titles of the columns of scores."""
    return ("score", "language", "layers", "before", "after", language_name(records.source.language), "baseline")


def spread(scores: SeedScores) -> str:
    """Return the mean over seeds, and where there are several their standard deviation, in percentage points."""
    return percent(scores.mean) + (f" ± {100 * scores.deviation:.1f}" if len(scores.by_seed) > 1 else "")


def scores(records: RunRecords, further: bool = False) -> list[ScoreRow]:
    """Return every score of every language; those of one name together.

    Args:
        records: of the run.
        further: whether tasks have all of their metrics, not only the official one.
    """
    found = [score for result in records.languages for score in _scores(records, result, further)]
    names = list(dict.fromkeys(score.name for score in found))
    return sorted(found, key=lambda score: names.index(score.name))


def _scores(records: RunRecords, result: LanguageResult, further: bool) -> Iterator[ScoreRow]:
    def once(share: float) -> SeedScores:
        return SeedScores(by_seed={0: share})

    if result.masked:
        top = records.source.masked_by_depth.get(records.source.layers)
        before, after = once(result.masked.primary_initial), once(result.masked.primary)
        yield ScoreRow("masked tokens", result, before, after, None if top is None else once(top))
    if result.alignment:
        before, after = once(result.alignment.top_initial.accuracy), once(result.alignment.top.accuracy)
        yield ScoreRow(f"alignment, {result.alignment.basis.label}", result, before, after)
    for task in result.tasks:
        official = records.source.task_scores.get(task.name)
        source = {official.metric: official.score, **official.others} if official else {}
        baselines = [(task.baseline, "one answer"), *((each.mean, name) for name, each in task.baselines.items())]
        title = f"{task.name}, {metric_label(task.metric)}"
        yield ScoreRow(title, result, task.initial, task.score, source.get(task.metric), baseline=max(baselines))
        for metric, each in task.others.items() if further else ():
            title = f"{task.name}, {metric_label(metric)}"
            yield ScoreRow(title, result, task.initial_others.get(metric), each, source.get(metric))


def costs(records: RunRecords) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of the table of updates, tokens, FLOPs and time, with their sum at the end."""
    source = records.source
    built = {layers_of(row): row.building for row in records.languages if row.building}
    spent: list[tuple[str, Cost, float | None]] = [
        ("pretraining", source.pretraining, None),
        *((f"mini-model, {layers}", cost, None) for layers, cost in built.items()),
        *((f"finetuning on {task}", cost, None) for task, cost in source.finetuning.items()),
        *(
            (f"{name_and_tag(row.language)}, {layers_of(row)}", row.cost, row.cost.flops / row.whole_flops)
            for row in records.languages
            if row.cost.steps  # without pairs, rows stay as they begin
        ),
    ]
    spent = [each for each in spent if each[1].steps]  # an imported model was trained by somebody else
    total = [sum(getattr(cost, name) for _, cost, _ in spent) for name in ("tokens", "flops", "elapsed_s")]
    rows: list[tuple[str, ...]] = [
        (name, f"{cost.steps:,}", f"{cost.tokens:,}", format_flops(cost.flops), _share(share), _time(cost.elapsed_s))
        for name, cost, share in spent
    ]
    rows.append(("all", "", f"{total[0]:,}", format_flops(total[1]), "", _time(total[2])))
    return ("training", "updates", "tokens", "FLOPs", "of all layers", "time"), rows


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def _time(elapsed_s: float) -> str:
    return f"{elapsed_s / 3600:.1f} h" if elapsed_s >= 3600 else f"{elapsed_s:.0f} s"


def verdict_lines(records: RunRecords) -> list[str]:
    """Say what the gate decided about each language, which languages failed, and which classes are never found."""
    verdicts = [
        f"{name_and_tag(language)}: version {verdict.version} of {verdict.model!r} is "
        f"{'promoted' if verdict.promoted else 'NOT promoted'}: {verdict.reason}"
        for language, verdict in records.verdicts.items()
    ]
    failed = [f"{name_and_tag(language)} FAILED: {reason}" for language, reason in records.failed.items()]
    return [*verdicts, *failed, *(f"WARNING: {each}" for each in records.warnings())]


def as_text(records: RunRecords) -> str:
    """Return scores, costs and verdicts for the terminal."""
    shown = text_table([head(records), *(score.cells for score in scores(records))], left=3)
    title, rows = costs(records)
    return "\n".join([*shown, *NOTES, "", *text_table([title, *rows]), "", *verdict_lines(records)])


def as_markdown(records: RunRecords) -> str:
    """Return scores and verdicts for the description of a run on MLflow's pages."""
    targets = ", ".join(map(name_and_tag, records.names))
    parts = [
        f"**From {name_and_tag(records.source.language)} to {targets}.** The whole report is among the artifacts; each "
        "stage is a run of its own below this one.",
        markdown_table(head(records), [score.cells for score in scores(records)], left=3),
        *verdict_lines(records),
    ]
    return "\n\n".join(parts)


def headline_metrics(records: RunRecords) -> dict[str, float]:
    """Return the scores of every evaluation, by names that MLflow groups by language and layers."""
    found: dict[str, float] = {}
    for result in records.languages:
        name = f"{result.language} over {result.learned_over} of {result.layers}/"
        if result.masked:
            found[f"{name}masked_accuracy"] = result.masked.primary
        if result.alignment:
            found[f"{name}alignment"] = result.alignment.top.accuracy
        for task in result.tasks:
            metrics = {task.metric: task.score, **task.others}
            found |= {f"{name}{task.name}_{metric}": each.mean for metric, each in metrics.items()}
    return found
