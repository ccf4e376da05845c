"""The report's plots: curves of what was learned, scores and costs per language, the depth search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lingraft.data.languages import language_name
from lingraft.reports.plotting import COLOURS, Drawing, line_styles, percent_ticks, si_ticks
from lingraft.reports.run.columns import baseline_label
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.stages.results import LanguageResult, NearestWords, Neighbour, SearchResult, SourceResult
from lingraft.tables import percent
from lingraft.training.schedule import TrainingMetrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOWEST_COSINE = 0.6
"""Cosine at the left end of a plot of words, at most."""
_LABEL_SHARE = 0.65
"""Room for a word at each side of a plot of words, beside what the dots span."""
LayerStyles = Mapping[AdaptedLayers, tuple[str, str]]
"""Dash pattern and colour of a line, by what embeddings were learned over."""


def layer_styles(records: RunRecords) -> LayerStyles:
    """Return one style per mini-model, the same in all plots; all layers are grey and dashed."""
    whole = AdaptedLayers(records.source.layers)
    trials = [AdaptedLayers(trial.depth) for trial in records.search.trials] if records.search else []
    fewer = sorted({*records.layer_choices, *trials} - {whole})
    return {**dict(zip(fewer, line_styles(), strict=False)), whole: ("--", COLOURS["grey"])}


@dataclass(frozen=True)
class _LossCurve:
    """A curve of training losses, and how its line looks; one without a label stands in no legend."""

    label: str
    points: Sequence[TrainingMetrics]
    style: str = "-"
    colour: str = COLOURS["blue"]

    def __str__(self) -> str:
        return f"from {self.points[0].loss:.2f} to {self.points[-1].loss:.2f}"


def _paint_losses(
    curves: Sequence[_LossCurve],
    quantity: Callable[[TrainingMetrics], float],
    axis: str,
    unit: str | None = None,
    compute_above: bool = False,
) -> "Callable[[Figure], None]":
    """Return a painter of losses over a quantity, which `axis` names; a unit puts prefixes at its ticks.

    `compute_above` adds a second scale, above that of tokens, of the FLOPs that went into them.
    """

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for curve in curves:
            axes.plot(
                [quantity(point) for point in curve.points],
                [point.loss for point in curve.points],
                curve.style,
                color=curve.colour,
                marker="o" if len(curve.points) == 1 else None,  # a line of one point is not to be seen
                label=curve.label or None,
            )
        axes.set(xlabel=axis, ylabel="loss (cross-entropy, nats)")
        if unit is not None:
            si_ticks(axes.xaxis, unit)
        if any(curve.label for curve in curves):
            axes.legend()
        if compute_above:
            last = curves[0].points[-1]
            _add_compute_scale(axes, last.flops / last.tokens)

    return paint


def _add_compute_scale(axes: "Axes", flops_per_token: float) -> None:
    above = axes.secondary_xaxis(
        "top",
        functions=(
            lambda t: np.asarray(t, float) * flops_per_token,
            lambda f: np.asarray(f, float) / flops_per_token,
        ),
    )
    above.set_xlabel("compute")
    si_ticks(above.xaxis, "FLOP")


def pretraining_plot(source: SourceResult) -> Drawing:
    """Draw loss over tokens, with FLOPs on a second scale above."""
    curve = _LossCurve("", source.pretraining_history)
    return Drawing(
        title=f"Pretraining in {language_name(source.language)}",
        caption="How well the primary guesses hidden tokens while it learns (the mean loss of its heads; lower is "
        "better).",
        alt=f"Line plot: the pretraining loss goes {curve}.",
        paint=_paint_losses([curve], lambda point: point.tokens, "tokens read", unit="", compute_above=True),
    )


def finetuning_plot(source: SourceResult, task: str) -> Drawing:
    """Draw loss over updates, a line per seed."""
    curves = [
        _LossCurve(f"seed {seed}", points, style, colour)
        for (seed, points), (style, colour) in zip(source.finetuning_history[task].items(), line_styles(), strict=False)
        if points
    ]
    return Drawing(
        title=f"Finetuning on {task} in {language_name(source.language)}",
        caption="How well the body, with frozen embeddings, learns the task; one line per seed.",
        alt=f"Line plot of the finetuning loss: {'; '.join(f'{curve.label} {curve}' for curve in curves)}.",
        paint=_paint_losses(curves, lambda point: point.step, "updates"),
    )


def adaptation_plots(language: str, results: Sequence[LanguageResult], styles: LayerStyles) -> list[Drawing]:
    """Draw loss over tokens and over FLOPs, a line per mini-model.

    One mini-model of one depth has one curve, which is the same over both: it is drawn once, with both scales.
    """
    title = f"Adaptation to {language_name(language)}"
    several = len(results) > 1 or bool(results[0].shallower)
    curves, ranges = [], []
    for result in results:
        layers = AdaptedLayers.of_result(result)
        label = f"{layers.of(result.layers)} layers" if several else ""
        style, colour = styles[layers]
        curves.append(_LossCurve(label, result.history, style, colour))
        ranges.append(f"over {layers} layers {curves[-1]}")
    caption = "Loss while the embeddings are learned over a frozen body"
    by_text = Drawing(
        title=f"{title}, by text read" if several else title,
        caption=caption + (", against the text read; lower is better." if several else "; lower is better."),
        alt=f"Line plot of the adaptation loss over tokens: {'; '.join(ranges)}.",
        paint=_paint_losses(curves, lambda point: point.tokens, "tokens read", unit="", compute_above=not several),
    )
    if not several:
        return [by_text]
    by_compute = Drawing(
        title=f"{title}, by compute",
        caption="The same losses by operations spent: fewer layers finish earlier.",
        alt=f"Line plot of the adaptation loss over FLOPs: {'; '.join(ranges)}.",
        paint=_paint_losses(curves, lambda point: point.flops, "compute", unit="FLOP"),
    )
    return [by_text, by_compute]


@dataclass(frozen=True)
class _Dots:
    """One kind of dot in a plot with a line per language and mini-model; what is None is left out."""

    label: str
    marker: str
    colour: str
    values: list[float | None]
    deviations: list[float] | None = None
    hollow: bool = False
    size: float = 6

    def paint(self, axes: "Axes") -> None:
        places = [place for place, value in enumerate(self.values) if value is not None]
        axes.errorbar(
            [value for value in self.values if value is not None],
            places,
            xerr=self.deviations and [self.deviations[place] for place in places],
            fmt=self.marker,
            color=COLOURS[self.colour],
            markerfacecolor="none" if self.hollow else COLOURS[self.colour],
            markersize=self.size,
            capsize=3,
            label=self.label,
        )


def _row_labels(results: Sequence[LanguageResult]) -> list[str]:
    return [
        f"{language_name(result.language)}  {AdaptedLayers.of_result(result).of(result.layers)}" for result in results
    ]


def _label_rows(axes: "Axes", labels: list[str]) -> None:
    """Name a line per label, from top to bottom, and draw a legend above."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)


def _height(results: Sequence[LanguageResult]) -> float:
    return 1.4 + 0.3 * len(results)


def _dot_plot(
    records: RunRecords,
    results: Sequence[LanguageResult],
    dots: list[_Dots],
    reference: float | None,
    axis: str,
    title: str,
    caption: str,
) -> Drawing:
    """Draw dots on a line per language and mini-model, and the source's score, if it has one, as a reference."""
    labels = _row_labels(results)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for kind in dots:
            kind.paint(axes)
        if reference is not None:
            source = f"{language_name(records.source.language)} (source)"
            axes.axvline(reference, color=COLOURS["grey"], linestyle=":", label=source)
        _label_rows(axes, labels)
        axes.set_xlabel(axis)
        percent_ticks(axes.xaxis)

    shown = [
        f"{label}: "
        + ", ".join(f"{kind.label} {percent(value)}" for kind in dots if (value := kind.values[place]) is not None)
        for place, label in enumerate(labels)
    ]
    alt = f"Dot plot. {'; '.join(shown)}."
    return Drawing(title=title, caption=caption, alt=alt, paint=paint, height_in=_height(results))


def masked_plot(records: RunRecords) -> Drawing:
    """Draw masked accuracy: as initialised, by the mini-model, by the primary."""
    results = records.languages
    return _dot_plot(
        records,
        results,
        [
            _Dots(
                "primary, before", "o", "grey", [r.masked_scores.get("primary_initial") for r in results], hollow=True
            ),
            _Dots("mini-model, after", "D", "orange", [r.masked_scores.get("mini") for r in results]),
            _Dots("primary, after", "o", "blue", [r.masked_scores.get("primary") for r in results]),
        ],
        reference=records.source.masked_by_depth.get(records.source.layers),
        axis="hidden tokens guessed right",
        title="Masked-token accuracy",
        caption="How far the learned embeddings carry each model from where they started; a line per language and "
        "mini-model.",
    )


def task_plot(records: RunRecords, task: str) -> Drawing:
    """Draw zero-shot scores against initialisation and a trivial answer, with deviations over seeds."""
    facts = records.scores(task)
    results = records.tested_on(task)
    source = records.source.task_scores.get(task)
    scores = [result.task_scores[task] for result in results]
    several = all(len(found.score.by_seed) > 1 for found in scores)
    deviations = [found.score.deviation for found in scores] if several else None
    initial = [found.initial.mean if found.initial else None for found in scores]
    whiskers = " Whiskers are one standard deviation over finetuning seeds." if several else ""
    return _dot_plot(
        records,
        results,
        [
            _Dots(baseline_label(facts), "|", "red", [found.baseline for found in scores], size=13),
            _Dots("before", "o", "grey", initial, hollow=True),
            _Dots("after", "o", "blue", [found.score.mean for found in scores], deviations),
        ],
        reference=source.score.mean if source else None,
        axis=facts.metric,
        title=f"Zero-shot {facts.metric} on {task}",
        caption=f"Scores in languages that the task was never taught in.{whiskers}",
    )


def cost_plot(records: RunRecords) -> Drawing:
    """Draw FLOPs spent, before those of all layers."""
    results = records.languages

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        places = range(len(results))
        whole = [result.whole_flops for result in results]
        spent = [result.cost.flops for result in results]
        axes.barh(places, whole, 0.7, facecolor="none", edgecolor=COLOURS["grey"], label="all layers")
        axes.barh(places, spent, 0.7, color=COLOURS["blue"], label="spent")
        for place in places:
            share = percent(spent[place] / whole[place])
            end = max(whole[place], spent[place])
            axes.annotate(share, (end, place), (4, 0), textcoords="offset points", va="center")
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.15)
        axes.set_xlabel("compute")
        si_ticks(axes.xaxis, "FLOP")
        _label_rows(axes, _row_labels(results))

    return Drawing(
        title="Compute of adaptation",
        caption="Operations spent on a language's embeddings, and what as many updates over all layers take.",
        alt="Bar chart; the table gives the same numbers.",
        paint=paint,
        height_in=_height(results),
    )


def words_plot(result: LanguageResult, source: str) -> Drawing:
    """Draw a language's words by the cosine with the source's nearest word, which is written beside it."""
    words, shared = ([each for each in result.nearest_words if each.shared is it] for it in (False, True))
    rows: list[NearestWords | None] = [*words, *([None] if shared else []), *shared]
    before = [row.before[0] if row else None for row in rows]
    after = [row.after[0] if row else None for row in rows]
    dots = [
        _Dots("before", "o", "grey", [each.cosine if each else None for each in before], hollow=True),
        _Dots("after", "o", "blue", [each.cosine if each else None for each in after]),
    ]
    low = min(_LOWEST_COSINE, *(each.cosine for each in (*before, *after) if each))

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for kind in dots:
            kind.paint(axes)
        for place, (first, then) in enumerate(zip(before, after, strict=True)):
            if first and then:
                _label_ends(axes, place, first, then)
        _label_rows(axes, [row.word if row else "names, numbers:" for row in rows])
        room = _LABEL_SHARE * (1 - low)
        axes.set_xlim(low - room, 1 + room)
        axes.set_xticks([tick / 5 for tick in range(6) if tick / 5 >= low - room])
        axes.set_xlabel("cosine with the nearest word")

    name, source_name = language_name(result.language), language_name(source)
    shown = [f"{row.word}: {row.before[0].piece} before, {row.after[0].piece} after" for row in result.nearest_words]
    return Drawing(
        title=f"Words of {name} beside {source_name}",
        caption=f"The nearest {source_name} word of frequent {name} words; one word where it is the same before and "
        "after.",
        alt=f"Dot plot. {'; '.join(shown)}.",
        paint=paint,
        height_in=0.9 + 0.24 * len(rows),
    )


def _label_ends(axes: "Axes", place: int, before: Neighbour, after: Neighbour) -> None:
    """Write the nearest words outside of the two dots of a line; once if they are the same."""
    left, right = sorted((before, after), key=lambda each: each.cosine)
    ends = [(right, 6, "left")] if left.piece == right.piece else [(left, -6, "right"), (right, 6, "left")]
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    for each, offset, side in ends:
        axes.annotate(each.piece, (each.cosine, place), (offset, 0), ha=side, **style)


def search_plot(search: SearchResult, styles: LayerStyles) -> Drawing:
    """Draw score over FLOPs, a line per trial; the chosen depth stands out."""

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for trial in search.trials:
            style, colour = styles[AdaptedLayers(trial.depth)]
            points = trial.scores_by_flops or [(trial.flops, trial.score)]
            chosen = trial.depth == search.chosen
            remark = " (chosen)" if chosen else " (stopped early)" if trial.pruned else ""
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=colour,
                marker="x" if trial.pruned else "o",
                linewidth=3.5 if chosen else 1.2,
                label=f"{trial.depth} layers{remark}",
            )
        axes.set(xlabel="compute", ylabel="masked-token accuracy, dev")
        si_ticks(axes.xaxis, "FLOP")
        percent_ticks(axes.yaxis)
        axes.legend()

    return Drawing(
        title="Depth search",
        caption="Each line is a short adaptation over one depth, all with the same budget of operations; "
        "the thick one is the depth chosen. Scores are of dev documents, not of test documents.",
        alt=f"Line plot of dev accuracy over FLOPs; {search.chosen} layers were chosen.",
        paint=paint,
    )
