"""The report: one HTML page that opens from disk and needs no network, and its records."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.languages import language_name, name_and_tag
from lingraft.reports.pages import render_page
from lingraft.reports.plotting import Drawing, line_styles, si_ticks
from lingraft.reports.run.records import RECORDS_FILE, RunRecords, layers_of
from lingraft.reports.run.tables import NOTES, costs, head, scores
from lingraft.training.schedule import TrainingMetrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE_FILE = "report.html"


def write(records: RunRecords, out: Path) -> Artifact:
    """Write report.html, one self-contained page, and report.json, the records it was made from, as a new artifact.

    Raises:
        ArtifactError: `out` cannot be written.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    found, (titles, rows) = scores(records, further=True), costs(records)
    context = {
        "records": records,
        "head": head(records)[1:],
        "scores": [(name, [*each]) for name, each in itertools.groupby(found, key=lambda score: score.name)],
        "notes": NOTES,
        "cost_head": titles,
        "costs": rows,
        "curves": loss_curves(records),
        "worded": [next(row for row in records.languages if row.language == tag) for tag in records.names],
        "version": __version__,
    }
    page = render_page("lingraft.reports.run", PAGE_FILE, context, {"language": language_name, "tagged": name_and_tag})
    with artifact.create(out, Kind.REPORT) as draft:
        (draft.folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = {
            "language": records.source.language,
            "aligned_with": records.source.primary,
            "details": {"languages": records.names},
        }
    return Artifact.load(out, Kind.REPORT)


def loss_curves(records: RunRecords) -> list[Drawing]:
    """Return a figure of losses over tokens for pretraining, for finetuning and for the languages; those that exist."""
    source = records.source
    finetuning = {
        f"{task}, seed {seed}": points
        for task, seeds in source.finetuning_history.items()
        for seed, points in seeds.items()
    }
    adaptation = {f"{language_name(row.language)}, {layers_of(row)}": row.history for row in records.languages}
    return [
        *_losses(f"Pretraining in {language_name(source.language)}", {"": source.pretraining_history}),
        *_losses(f"Finetuning in {language_name(source.language)}", finetuning),
        *_losses("Learning languages", adaptation),
    ]


def _losses(title: str, curves: Mapping[str, Sequence[TrainingMetrics]]) -> list[Drawing]:
    drawn = {label: points for label, points in curves.items() if points}

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for (label, points), (style, colour) in zip(drawn.items(), line_styles(), strict=False):
            marker = "o" if len(points) < 9 else None
            tokens, losses = [point.tokens for point in points], [point.loss for point in points]
            axes.plot(tokens, losses, style, color=colour, marker=marker, label=label or None)
        axes.set(xlabel="tokens", ylabel="loss")
        si_ticks(axes.xaxis)
        if len(drawn) > 1:
            axes.legend()

    ends = "; ".join(
        f"{label} from {points[0].loss:.3g} to {points[-1].loss:.3g}".strip() for label, points in drawn.items()
    )
    alt = f"Line plot of the loss: {ends}."
    return [Drawing(title=title, caption="", alt=alt, paint=paint, width_in=5.2)] if drawn else []
