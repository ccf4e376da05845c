"""The report's plots: curves of what was learned, scores and costs per language, the depth search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lingraft.data.languages import language_name
from lingraft.reports.plotting import COLOURS, Plot, draw_plot, line_styles, percent_ticks, si_ticks
from lingraft.reports.run.columns import percent
from lingraft.reports.run.records import AdaptedLayers, RunRecords
from lingraft.reports.run.task_columns import baseline_label
from lingraft.stages.results import LanguageResult, NearestWords, Neighbour, Point, SourceResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LOWEST_COSINE = 0.6
"""From where on a plot of words shows cosines at least."""
_LABEL_SHARE = 0.65
"""Room for a word at each side of a plot of words, beside what the dots span."""
Styles = Mapping[AdaptedLayers, tuple[str, str]]
"""Dash pattern and colour of a line, by what embeddings were learned over."""


def _loss_range(points: Sequence[Point]) -> str:
    return f"from {points[0].loss:.2f} to {points[-1].loss:.2f}"


def _compute_above(axes: "Axes", points: Sequence[Point]) -> None:
    """A second scale above one of tokens: the FLOPs that went into them."""
    flops_per_token = points[-1].flops / points[-1].tokens
    above = axes.secondary_xaxis(
        "top",
        functions=(
            lambda t: np.asarray(t, float) * flops_per_token,
            lambda f: np.asarray(f, float) / flops_per_token,
        ),
    )
    above.set_xlabel("compute")
    si_ticks(above.xaxis, "FLOP")


def pretraining_plot(source: SourceResult) -> Plot:
    """Loss over tokens, with FLOPs on a second scale above."""
    points = source.pretraining_history

    def paint(axes: "Axes") -> None:
        axes.plot([p.tokens for p in points], [p.loss for p in points], color=COLOURS["blue"])
        axes.set(xlabel="tokens read", ylabel="loss (cross-entropy, nats)")
        si_ticks(axes.xaxis)
        _compute_above(axes, points)

    return draw_plot(
        f"Pretraining in {language_name(source.language)}",
        "How well the primary guesses hidden tokens while it learns (the mean loss of its heads; lower is better).",
        f"Line plot: the pretraining loss goes {_loss_range(points)}.",
        paint,
    )


def finetuning_plot(source: SourceResult, task: str) -> Plot:
    """Loss over updates, a line per seed."""
    runs = source.finetuning_history[task]

    def paint(axes: "Axes") -> None:
        for (seed, points), (style, colour) in zip(runs.items(), line_styles(), strict=False):
            marker = "o" if len(points) == 1 else None  # a line of one point is not to be seen
            losses = [p.loss for p in points]
            axes.plot([p.step for p in points], losses, style, color=colour, marker=marker, label=f"seed {seed}")
        axes.set(xlabel="updates", ylabel="loss (cross-entropy, nats)")
        axes.legend()

    falls = "; ".join(f"seed {seed} {_loss_range(points)}" for seed, points in runs.items())
    return draw_plot(
        f"Finetuning on {task} in {language_name(source.language)}",
        "How well the body, with frozen embeddings, learns the task; one line per seed.",
        f"Line plot of the finetuning loss: {falls}.",
        paint,
    )


def layer_styles(records: RunRecords) -> Styles:
    """One look per mini-model, the same in all plots; all layers are grey and dashed."""
    whole = AdaptedLayers(records.source.layers)
    trials = [AdaptedLayers(trial.depth) for trial in records.search.trials] if records.search else []
    fewer = sorted({*records.layer_choices, *trials} - {whole})
    return {**dict(zip(fewer, line_styles(), strict=False)), whole: ("--", COLOURS["grey"])}


def adaptation_plots(language: str, results: Sequence[LanguageResult], styles: Styles) -> list[Plot]:
    """Loss over tokens and over FLOPs, a line per mini-model.

    One mini-model of one depth has one curve, which is the same over both: it is drawn once, with both scales.
    """
    name = language_name(language)
    several = len(results) > 1 or bool(results[0].shallower)
    falls = "; ".join(f"over {AdaptedLayers.of_result(r)} layers {_loss_range(r.history)}" for r in results)

    def over(quantity: Callable[[Point], float], label: str, unit: str) -> "Callable[[Axes], None]":
        def paint(axes: "Axes") -> None:
            for result in results:
                layers = AdaptedLayers.of_result(result)
                style, colour = styles[layers]
                label_of = f"{layers.of(result.layers)} layers"
                losses = [point.loss for point in result.history]
                axes.plot([quantity(p) for p in result.history], losses, style, color=colour, label=label_of)
            axes.set(xlabel=label, ylabel="loss (cross-entropy, nats)")
            si_ticks(axes.xaxis, unit)
            if several:
                axes.legend()
            else:
                _compute_above(axes, results[0].history)

        return paint

    by_text = draw_plot(
        f"Adaptation to {name}, by text read" if several else f"Adaptation to {name}",
        "Loss while the embeddings are learned over a frozen body"
        + (", against the text read; lower is better." if several else "; lower is better."),
        f"Line plot of the adaptation loss over tokens: {falls}.",
        over(lambda p: p.tokens, "tokens read", ""),
    )
    if not several:
        return [by_text]
    by_compute = draw_plot(
        f"Adaptation to {name}, by compute",
        "The same losses by operations spent: fewer layers finish earlier.",
        f"Line plot of the adaptation loss over FLOPs: {falls}.",
        over(lambda p: p.flops, "compute", "FLOP"),
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
        deviations = self.deviations and [self.deviations[place] for place in places]
        axes.errorbar(
            [value for value in self.values if value is not None],
            places,
            xerr=deviations,
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


def _paint_rows(axes: "Axes", labels: list[str]) -> None:
    """A line per label, from top to bottom, and a legend above."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)


def _dot_plot(
    records: RunRecords,
    dots: list[_Dots],
    results: Sequence[LanguageResult],
    reference: float | None,
    titles: tuple[str, str, str],
) -> Plot:
    """Dots on a line per language and mini-model, and the source's score, if it has one, as a reference."""
    title, caption, label = titles

    def paint(axes: "Axes") -> None:
        for kind in dots:
            kind.paint(axes)
        if reference is not None:
            axes.axvline(
                reference,
                color=COLOURS["grey"],
                linestyle=":",
                label=f"{language_name(records.source.language)} (source)",
            )
        _paint_rows(axes, _row_labels(results))
        axes.set_xlabel(label)
        percent_ticks(axes.xaxis)

    said = [
        f"{name}: "
        + ", ".join(f"{kind.label} {percent(value)}" for kind in dots if (value := kind.values[place]) is not None)
        for place, name in enumerate(_row_labels(results))
    ]
    return draw_plot(title, caption, f"Dot plot. {'; '.join(said)}.", paint, _height(results))


def _height(results: Sequence[LanguageResult]) -> float:
    return 1.4 + 0.3 * len(results)


def masked_plot(records: RunRecords) -> Plot:
    """Masked accuracy: as initialised, by the mini-model, by the primary."""
    results = records.languages
    dots = [
        _Dots("primary, before", "o", "grey", [r.masked.primary_initial for r in results], hollow=True),
        _Dots("mini-model, after", "D", "orange", [r.masked.mini for r in results]),
        _Dots("primary, after", "o", "blue", [r.masked.primary for r in results]),
    ]
    titles = (
        "Masked-token accuracy",
        "How far the learned embeddings carry each model from where they started; a line per language and mini-model.",
        "hidden tokens guessed right",
    )
    return _dot_plot(records, dots, results, records.source.masked_by_depth[records.source.layers], titles)


def task_plot(records: RunRecords, task: str) -> Plot:
    """Zero-shot scores against initialisation and a trivial answer, with deviations over seeds."""
    facts = records.scores(task)
    results = records.tested_on(task)
    source = records.source.task_scores.get(task)
    scores = [result.task_scores[task] for result in results]
    several = all(len(found.score.by_seed) > 1 for found in scores)
    deviations = [found.score.deviation for found in scores] if several else None
    dots = [
        _Dots(baseline_label(facts), "|", "red", [found.baseline for found in scores], size=13),
        _Dots("before", "o", "grey", [found.initial.mean if found.initial else None for found in scores], hollow=True),
        _Dots("after", "o", "blue", [found.score.mean for found in scores], deviations),
    ]
    spread = " Whiskers are one standard deviation over finetuning seeds." if several else ""
    titles = (
        f"Zero-shot {facts.metric} on {task}",
        f"Scores in languages that the task was never taught in.{spread}",
        facts.metric,
    )
    return _dot_plot(records, dots, results, source.score.mean if source else None, titles)


def cost_plot(records: RunRecords) -> Plot:
    """FLOPs spent, before those of all layers."""
    results = records.languages
    places = range(len(results))

    def paint(axes: "Axes") -> None:
        whole = [result.whole_flops for result in results]
        spent = [result.cost.flops for result in results]
        axes.barh(places, whole, 0.7, facecolor="none", edgecolor=COLOURS["grey"], label="all layers")
        axes.barh(places, spent, 0.7, color=COLOURS["blue"], label="spent")
        for place, result in enumerate(results):
            share = percent(result.cost.flops / result.whole_flops)
            axes.annotate(
                share, (max(whole[place], spent[place]), place), (4, 0), textcoords="offset points", va="center"
            )
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.15)
        axes.set_xlabel("compute")
        si_ticks(axes.xaxis, "FLOP")
        _paint_rows(axes, _row_labels(results))

    return draw_plot(
        "Compute of adaptation",
        "Operations spent on a language's embeddings, and what as many updates over all layers take.",
        "Bar chart; the table gives the same numbers.",
        paint,
        _height(results),
    )


def words_plot(result: LanguageResult, source: str) -> Plot:
    """A language's words by the cosine with the source's nearest word, which is written beside it."""
    words, shared = ([each for each in result.nearest_words if each.shared is it] for it in (False, True))
    rows: list[NearestWords | None] = [*words, *([None] if shared else []), *shared]
    before = [row.before[0] if row else None for row in rows]
    after = [row.after[0] if row else None for row in rows]
    dots = [
        _Dots("before", "o", "grey", [each.cosine if each else None for each in before], hollow=True),
        _Dots("after", "o", "blue", [each.cosine if each else None for each in after]),
    ]
    low = min(_LOWEST_COSINE, *(each.cosine for each in (*before, *after) if each))

    def paint(axes: "Axes") -> None:
        for kind in dots:
            kind.paint(axes)
        for place, (first, then) in enumerate(zip(before, after, strict=True)):
            if first and then:
                _label_ends(axes, place, first, then)
        _paint_rows(axes, [row.word if row else "names, numbers:" for row in rows])
        room = _LABEL_SHARE * (1 - low)
        axes.set_xlim(low - room, 1 + room)
        axes.set_xticks([tick / 5 for tick in range(6) if tick / 5 >= low - room])
        axes.set_xlabel("cosine with the nearest word")

    name = language_name(result.language)
    source_name = language_name(source)
    said = [f"{row.word}: {row.before[0].piece} before, {row.after[0].piece} after" for row in result.nearest_words]
    return draw_plot(
        f"Words of {name} beside {source_name}",
        f"The nearest {source_name} word of frequent {name} words; one word where it is the same before and after.",
        f"Dot plot. {'; '.join(said)}.",
        paint,
        0.9 + 0.24 * len(rows),
    )


def _label_ends(axes: "Axes", place: int, before: Neighbour, after: Neighbour) -> None:
    """Write the nearest words outside of the two dots of a line; once if they are the same."""
    left, right = sorted((before, after), key=lambda each: each.cosine)
    ends = [(right, 6, "left")] if left.piece == right.piece else [(left, -6, "right"), (right, 6, "left")]
    for each, offset, side in ends:
        axes.annotate(
            each.piece,
            (each.cosine, place),
            (offset, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=9,
        )


def search_plot(trials: Sequence[Trial], chosen: int, styles: Styles) -> Plot:
    """Score over FLOPs, a line per trial; the chosen depth stands out."""

    def paint(axes: "Axes") -> None:
        for trial in trials:
            style, colour = styles[AdaptedLayers(trial.depth)]
            points = trial.scores_by_flops or [(trial.flops, trial.score)]
            remark = " (chosen)" if trial.depth == chosen else " (stopped early)" if trial.pruned else ""
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=colour,
                marker="x" if trial.pruned else "o",
                linewidth=3.5 if trial.depth == chosen else 1.2,
                label=f"{trial.depth} layers{remark}",
            )
        axes.set(xlabel="compute", ylabel="masked-token accuracy, dev")
        si_ticks(axes.xaxis, "FLOP")
        percent_ticks(axes.yaxis)
        axes.legend()

    return draw_plot(
        "Depth search",
        "Each line is a short adaptation over one depth, all with the same budget of operations; "
        "the thick one is the depth chosen. Scores are of dev documents, not of test documents.",
        f"Line plot of dev accuracy over FLOPs; {chosen} layers were chosen.",
        paint,
    )
