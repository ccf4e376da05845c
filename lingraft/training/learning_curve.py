"""The learning curve that a training leaves in its artifact."""

import json
from collections.abc import Iterable
from pathlib import Path

from lingraft.artifacts.artifact import Draft
from lingraft.training.schedule import TrainingMetrics

HISTORY_FILE = "history.jsonl"


def write_curve(draft: Draft, points: Iterable[TrainingMetrics]) -> None:
    """Write a curve into an artifact, as a log; empty for a model that was imported."""
    draft.log(HISTORY_FILE, "".join(json.dumps(point._asdict()) + "\n" for point in points))


def read_curve(folder: Path) -> list[TrainingMetrics]:
    """The curve in an artifact's folder; none where nothing was trained."""
    path = folder / HISTORY_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [TrainingMetrics(**json.loads(line)) for line in lines]
