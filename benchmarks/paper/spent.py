"""Costs of the comparison's trainings, from the manifests of what they left."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.manifest import MANIFEST, Kind, Manifest, read_manifest
from lingraft.comparison import runner
from lingraft.comparison.plan import Comparison
from lingraft.jobs.job import Job
from lingraft.reports.paper.report_table import ReportTable, TableRow
from lingraft.tables import format_flops
from lingraft.training.schedule import read_curve

_STAGES = {
    Kind.PRIMARY: "pretraining",
    Kind.MINI: "step 1b",
    Kind.EMBEDDINGS: "adaptation",
    Kind.TASK: "finetuning",
}
_HOUR_S = 3600


def spent(comparison: Comparison, out: Path) -> list[dict[str, Any]]:
    """A record of every training that has come to its end."""
    return [_record(job) for job in runner.comparison_jobs(comparison, out) if job.kind in _STAGES and _is_made(job)]


def _is_made(job: Job) -> bool:
    return (job.made / MANIFEST).exists()


def _record(job: Job) -> dict[str, Any]:
    found = read_manifest(job.made)
    record = {"stage": _STAGES[job.kind], "title": job.title, **found.cost.model_dump()}
    curve = read_curve(job.made)
    if job.kind is Kind.PRIMARY and curve:
        record["losses"] = [(point.step, point.loss) for point in curve]
    return record | _examples(found)


def _examples(found: Manifest) -> dict[str, Any]:
    names = ("examples", "truncated")
    return {name: found.details[name] for name in names if name in found.details} | (
        {"task": found.details["settings"]["name"]} if "settings" in found.details else {}
    )


def stages_table(comparison: Comparison, out: Path, records: Sequence[dict[str, Any]]) -> ReportTable:
    """Trainings by stage: how many of those planned are done, and what they took."""
    planned = [_STAGES[job.kind] for job in runner.comparison_jobs(comparison, out) if job.kind in _STAGES]
    rows = []
    for stage in _STAGES.values():
        its = [record for record in records if record["stage"] == stage]
        hours = sum(record["elapsed_s"] for record in its) / _HOUR_S
        cells = (
            f"{len(its)} of {planned.count(stage)}",
            format_flops(sum(one["flops"] for one in its)),
            f"{hours:.2f}",
        )
        rows.append(TableRow(stage, cells))
    whole = sum(record["flops"] for record in records), sum(record["elapsed_s"] for record in records) / _HOUR_S
    rows.append(TableRow("all", (f"{len(records)} of {len(planned)}", format_flops(whole[0]), f"{whole[1]:.2f}")))
    note = "FLOPs are by equations A1, A3 and A4; hours are those of training alone, without judging."
    return ReportTable("", "What was trained", ("stage", "runs", "FLOPs", "hours"), tuple(rows), (note,))


def pretraining_table(records: Sequence[dict[str, Any]]) -> ReportTable:
    """How far each pretraining came: a model that knows only how frequent words are has stayed on the first plateau."""
    rows = [TableRow(record["title"], (*_losses(record["losses"]),)) for record in records if "losses" in record]
    notes = ("Mean over heads of the cross-entropy of masked tokens in nats, on training text.",)
    return ReportTable("", "Loss along pretraining", ("pretraining", "a quarter", "half", "end"), tuple(rows), notes)


def _losses(curve: Sequence[tuple[int, float]]) -> Iterator[str]:
    last = curve[-1][0]
    for share in (0.25, 0.5, 1):
        step, loss = min(curve, key=lambda point: abs(point[0] - share * last))
        yield f"{loss:.2f} (update {step:,})"


def truncations(records: Sequence[dict[str, Any]]) -> list[str]:
    """How many training examples of each task are cut to a block, in words."""
    counts = {one["task"]: (one["truncated"], one["examples"]) for one in records if "truncated" in one}
    return [
        f"{task}: {cut:,} of {examples:,} training examples ({cut / examples:.1%}) are cut to a block."
        for task, (cut, examples) in counts.items()
    ]
