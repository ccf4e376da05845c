"""Every table that a kind of task needs has all of them: a missing entry would fail only where it is used."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from lingraft.bundle.format import OUTPUTS
from lingraft.config.tasks import INPUTS, PRIMARY, TaskKindName
from lingraft.serving.served_models import TASK_HANDLERS

KINDS = {*get_args(TaskKindName)}


@pytest.mark.parametrize(
    ("table", "more"),
    [(INPUTS, set()), (OUTPUTS, {PRIMARY}), (TASK_HANDLERS, set())],
    ids=["INPUTS", "OUTPUTS", "TASK_HANDLERS"],
)
def test_a_table_has_every_kind(table: Mapping[Any, Any], more: set[str]) -> None:
    assert {*table} == KINDS | more
