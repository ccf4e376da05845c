"""Which of a task's finetuning seeds is served and exported; without PyTorch."""

from collections.abc import Mapping
from typing import Any


def dev_score_and_seed(facts: Mapping[str, Any]) -> tuple[float, int]:
    """Return dev score and seed by a task's details or its tags in the registry; the highest is chosen everywhere.

    An imported task has no dev score, which counts as 0.
    """
    return float(facts.get("dev_score", 0)), int(facts["seed"])
