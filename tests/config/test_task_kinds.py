"""Every table that a kind of task needs has all of them: a missing entry would fail only where it is used."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from lingraft.bundle.format import OUTPUTS, OutputSizes
from lingraft.comparison import records
from lingraft.config.tasks import INPUTS, PRIMARY, TaskKindName
from lingraft.serving import openapi, rpc
from lingraft.serving.served_models import PRIMARY_HANDLERS, TASK_HANDLERS

KINDS = {*get_args(TaskKindName)}


@pytest.mark.parametrize(
    ("table", "more"),
    [(INPUTS, set()), (OUTPUTS, {PRIMARY}), (TASK_HANDLERS, set()), (records._TRIVIAL, set())],
    ids=["INPUTS", "OUTPUTS", "TASK_HANDLERS", "_TRIVIAL"],
)
def test_a_table_has_every_kind(table: Mapping[Any, Any], more: set[str]) -> None:
    assert {*table} == KINDS | more


def test_every_door_knows_the_datatypes_of_all_outputs() -> None:
    sizes = OutputSizes(labels=3, width=8, has_ranges=True)
    used = {
        tensor.datatype
        for handler in (*TASK_HANDLERS.values(), *PRIMARY_HANDLERS.values())
        for tensor in handler.outputs(sizes)
    }
    assert used <= {"BYTES", *rpc._CONTENTS}  # strings have a way of their own
    assert used <= {*openapi._JSON_TYPES}
