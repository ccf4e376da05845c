"""Memory: one process that serves all languages and tasks, against a session for each of them.

Each side is a process of its own, `benchmarks.serving.memory_side`.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.made import Models
from lingraft.bundle.format import TABLE_FORMATS

_SHARE_OF_FREE = 0.7
"""Share of the free memory that separate models may take."""
Steps = list[dict[str, Any]]


def measured(models: Models, most: int | None) -> dict[str, Any]:
    """Bytes of both sides.

    Args:
        models: models that are served.
        most: separate models to open at most; as many as fit into most of the free memory if absent.
    """
    plan = models.plan
    wanted = plan.languages * plan.tasks
    count = min(wanted, most or separate_that_fit(models))
    separate = run_side("separate", str(count), *(str(models.separate(task)) for task in plan.task_names))
    steps = [step["bytes"] for step in separate]
    served = {tables: run_side("bundles", *map(str, models.bundles(tables))) for tables in TABLE_FORMATS}
    return {
        "served": {tables: found[-1]["bytes"] for tables, found in served.items()},
        "tables": {tables: found[-1]["tables"] for tables, found in served.items()},
        "server": served[TABLE_FORMATS[0]][0]["bytes"],
        "separate": steps,
        "weights": sum(models.separate(task).stat().st_size * plan.languages for task in plan.task_names),
        "wanted": wanted,
        "separate_bytes": extrapolated(steps, wanted),
    }


def separate_that_fit(models: Models) -> int:
    """How many separate models most of the free memory holds; two at least."""
    size = max(models.separate(task).stat().st_size for task in models.plan.task_names)
    return max(2, int(_SHARE_OF_FREE * free_bytes() / size))


def extrapolated(steps: Sequence[int], wanted: int) -> float:
    """Bytes with so many models, by least squares over 0, 1, 2 ... models, unless so many were measured."""
    if wanted < len(steps):
        return float(steps[wanted])
    slope, start = np.polyfit(range(len(steps)), steps, 1)
    return float(start + slope * wanted)


def free_bytes() -> int:
    """Memory that a new process may take without others being pushed out."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def run_side(*arguments: str) -> Steps:
    """Run a process of one side, and return what it prints."""
    command = [sys.executable, "-m", "benchmarks.serving.memory_side", *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]
