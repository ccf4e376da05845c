"""The memory that a language takes which comes while a server runs.

It is that of a process of its own (`memory_side`), once every row has been read.
"""

from typing import Any

import numpy as np

from benchmarks.serving.made import Models
from benchmarks.serving.memory import run_side
from lingraft.bundle.format import TABLE_FORMATS, TableFormat

_LANGUAGES = 6
"""Added one after the other."""


def measured(models: Models) -> dict[str, Any]:
    """Bytes by the tables' format."""
    return {"memory": {tables: _memory(models, tables) for tables in TABLE_FORMATS}}


def _memory(models: Models, tables: TableFormat) -> dict[str, float]:
    """Bytes of a table, and those that a language adds: the slope over some, since the heap goes up and down by MB."""
    served = (str(models.addition(tables, task)) for task in models.plan.task_names)
    steps = run_side("added", ",".join(models.plan.tags[:_LANGUAGES]), *served, *map(str, models.bundles(tables)))
    slope, _ = np.polyfit(range(len(steps)), [step["bytes"] for step in steps], 1)
    return {"table": steps[-1]["tables"], "added": float(slope)}
